"""Fill in templates such as `tenant:{tenant_id}` from the arguments of a call."""

from __future__ import annotations

import inspect
import string
from typing import TYPE_CHECKING, Any

from relier.errors import ConfigurationError, InvalidSubmissionError

if TYPE_CHECKING:
    from relier.arguments import Arguments

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class Template:
    """Fill in a template such as `tenant:{tenant_id}` from the arguments of one function."""

    def __init__(self, text: str, arguments: Arguments, what: str) -> None:
        self._text = text
        self._arguments = arguments
        self._what = what
        known = arguments.parameters
        free = any(each.kind is each.VAR_KEYWORD for each in known.values())
        for name in fields_of(text, what):
            if name not in known and not free:
                raise ConfigurationError(
                    f"{what} {text!r} names {{{name}}}, but the function has no such argument; its arguments are: "
                    f"{', '.join(known) or 'none'}"
                )

    def render(self, args: Args, kwargs: Kwargs) -> str:
        try:
            return self._text.format_map(bound(self._arguments, args, kwargs))
        except (LookupError, AttributeError, ValueError, TypeError) as error:
            raise InvalidSubmissionError(
                f"{self._what} {self._text!r} cannot be filled in from these arguments "
                f"({type(error).__name__}: {error}); nothing was pushed"
            ) from error


def fields_of(text: str, what: str) -> list[str]:
    """Return the argument names that a template uses."""
    try:
        parsed = [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]
    except ValueError as error:
        raise ConfigurationError(f"{what} {text!r} is not a valid template: {error}") from error
    names = [field.partition(".")[0].partition("[")[0] for field in parsed]
    if "" in names or any(name.isdigit() for name in names):
        raise ConfigurationError(f"{what} {text!r} must name its arguments: {{tenant_id}}, not {{}} or {{0}}")
    return names


def bound(arguments: Arguments, args: Args, kwargs: Kwargs) -> dict[str, Any]:
    """Return every argument by name, including defaults and the contents of `**kwargs`."""
    call = arguments.signature.bind(*args, **kwargs)
    call.apply_defaults()
    named = dict(call.arguments)
    for each in arguments.signature.parameters.values():
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            named |= named.pop(each.name)
    return named
