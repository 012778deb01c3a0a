"""Show a task of Django to tests as its author wrote it.

The backend for Django's tasks pushes a Relier task of the same name. Its arguments are `(args, kwargs, about)`, and its
result holds the value among other things. The attribute `declared` of its function is Django's task
(django/tasks/backend.py).
"""

from __future__ import annotations

import inspect
from typing import Any

from relier import registry
from relier.task import RlTask

Call = tuple[tuple[Any, ...], dict[str, Any]]


def relier_task(task: Any) -> Any:
    """Return the Relier task that is pushed for a task of Django; anything else as it is."""
    if isinstance(task, RlTask) or not hasattr(task, "func"):
        return task
    return registry.find(registry.identity(task.func)) or task


def seen_call(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Return the arguments of the call as the author of the task sees them."""
    if _declared(task) is None:
        return args, kwargs
    pushed = task.arguments.signature.bind(*args, **kwargs).arguments
    return tuple(pushed["args"]), dict(pushed["kwargs"])


def seen_result(task: Any, result: Any) -> Any:
    """Return the result of the call as the author of the task sees it."""
    return result if _declared(task) is None or result is None else result["value"]


def seen_arguments(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, with defaults. Raise TypeError if they do not fit."""
    bound = _signature(task).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _signature(task: Any) -> inspect.Signature:
    declared = _declared(task)
    if declared is None:
        known: inspect.Signature = task.arguments.signature
        return known
    signature = inspect.signature(declared.func)
    passed = list(signature.parameters.values())[1 if declared.takes_context else 0 :]
    return signature.replace(parameters=passed)


def _declared(task: Any) -> Any:
    return getattr(getattr(task, "fn", None), "declared", None)
