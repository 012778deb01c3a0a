"""What people may see of a task's values: all of it, or what the application's own function lets through.

    RELIER_REDACT=shop.privacy:redact

    def redact(task_name: str, value: Any) -> Any: ...

It is called with plain data wherever a value leaves for people's eyes (the command line, the log, the failure kept with
a dead letter): a text, or lists and dicts of plain values. What tasks write to their own log does not pass here. Nor,
but for failures, does what the store holds: that is what encryption is for.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from functools import lru_cache, partial, reduce
from typing import Any

from relier.errors import ConfigurationError
from relier.settings import Settings

Hook = Callable[[str, Any], Any]
Show = Callable[[Any], Any]


def shown(settings: Settings, task_name: str, value: Any) -> Any:
    """What may be shown of a value of that task. A hook that raises hides it."""
    show = showing(settings.redact, task_name)
    return value if show is None else show(value)


def showing(redact: str, task_name: str) -> Show | None:
    """The same for all values of one task; None where everything may be shown. `redact`: the setting of that name."""
    return partial(_passed, redact, task_name) if redact else None


def _passed(redact: str, task_name: str, value: Any) -> Any:
    hook = _hook(redact)
    try:
        return hook(task_name, value)
    except Exception as error:  # noqa: BLE001 - the application's code; and its message may quote the value
        return f"(hidden: {redact} raised {type(error).__name__})"


def check_hook(settings: Settings) -> None:
    """ConfigurationError, at start, where the hook of the settings is none."""
    if settings.redact:
        _hook(settings.redact)


@lru_cache
def _hook(path: str) -> Hook:
    module, _, name = path.partition(":")
    if os.getcwd() not in sys.path:  # the application's own modules, as for a worker
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = reduce(getattr, name.split("."), importlib.import_module(module))
    except Exception as error:
        raise ConfigurationError(
            f"RELIER_REDACT={path}: it cannot be imported ({type(error).__name__}: {error}); name it as "
            f"package.module:function, from the folder you start in ({os.getcwd()})"
        ) from error
    if not callable(found) or inspect.iscoroutinefunction(found):
        raise ConfigurationError(f"RELIER_REDACT={path}: it must be a plain function of a task's name and a value")
    return found  # type: ignore[no-any-return]
