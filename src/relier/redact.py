"""Hide private data in what people see of a task's values, with a function of the application.

    RELIER_REDACT=shop.privacy:redact

    def redact(task_name: str, value: Any) -> Any: ...

The function is called wherever a value is shown: on the command line, in the log, and in the failure stored with a dead
letter. It gets plain data: text, or lists and dicts of plain values. Two things do not pass through it: what tasks log
themselves, and, except for failures, what the store holds. Use encryption for that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from relier.errors import ConfigurationError
from relier.import_names import imported
from relier.settings import Settings

Hook = Callable[[str, Any], Any]
Show = Callable[[Any], Any]


def shown(settings: Settings, task_name: str, value: Any) -> Any:
    """Return what may be shown of a value of this task. If the hook raises, the value is hidden."""
    show = showing(settings.redact, task_name)
    return value if show is None else show(value)


def showing(redact: str, task_name: str) -> Show | None:
    """Return a function that redacts the values of one task, or None without a hook. `redact`: the setting."""
    return partial(_passed, redact, task_name) if redact else None


def _passed(redact: str, task_name: str, value: Any) -> Any:
    hook = _hook(redact)
    try:
        return hook(task_name, value)
    except Exception as error:  # noqa: BLE001 - user code, whose message may quote the value
        return f"(hidden: {redact} raised {type(error).__name__})"


def check_hook(settings: Settings) -> None:
    """Raise ConfigurationError at start if the hook in the settings cannot be used."""
    if settings.redact:
        _hook(settings.redact)


@lru_cache
def _hook(path: str) -> Hook:
    found = imported(path, "RELIER_REDACT")
    if not callable(found) or inspect.iscoroutinefunction(found):
        raise ConfigurationError(
            f"RELIER_REDACT={path}: it must be a plain function that takes a task's name and a value"
        )
    return found  # type: ignore[no-any-return]
