"""Mark parameters that Relier fills in: `Depends(…)` for dependencies, `INJECTED` as a default for type checkers."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relier.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Dependency:
    """Name the function that provides a parameter. `cached`: an attempt calls it once, however often it is needed."""

    provider: Callable[..., Any]
    cached: bool = True


class _Injected:
    """Mark a value that is filled in when the task runs. Type checkers then let callers omit it."""

    def __repr__(self) -> str:
        return "INJECTED"


INJECTED: Any = _Injected()


def Depends(provider: Callable[..., Any], *, cached: bool = True) -> Any:  # noqa: N802 - the name FastAPI users know
    """Fill in a parameter with the value that `provider` returns or yields when the task runs.

    Both forms mean the same. Type checkers let callers leave out a parameter only if it has a default:

        session: Session = Depends(get_session)
        session: Annotated[Session, Depends(get_session)] = INJECTED

    A provider is a function, an async function, a generator or an async generator, which cleans up after its `yield`.
    It may have dependencies itself, and a parameter `ctx: TaskContext`. The value is not part of the task's payload.
    """
    if not callable(provider):
        raise ConfigurationError(f"Depends takes a function that provides the value, not {provider!r:.60}")
    return Dependency(provider, cached)


def dependency_in(parameter: inspect.Parameter, hint: Any) -> Dependency | None:
    """Return the dependency that a parameter's default or annotation names, if there is one."""
    if isinstance(parameter.default, Dependency):
        return parameter.default
    if typing.get_origin(hint) is typing.Annotated:
        return next((each for each in typing.get_args(hint)[1:] if isinstance(each, Dependency)), None)
    return None


def looks_injected(parameter: inspect.Parameter) -> bool:
    """Return whether Relier fills in a parameter, as far as is known without resolving its annotation."""
    hint = parameter.annotation
    if isinstance(hint, str) and "Depends(" in hint:
        return True
    return parameter.default is INJECTED or dependency_in(parameter, hint) is not None
