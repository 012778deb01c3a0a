"""Call a task's function directly, as `await send_email(42)` does, and fill in what a worker would."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from relier.arguments.annotations import is_task_context
from relier.arguments.dependencies import Dependencies, async_provider, name_of
from relier.arguments.signature import Arguments
from relier.errors import ConfigurationError

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def call_directly(arguments: Arguments, fn: Callable[..., Any], args: Args, kwargs: Kwargs, context: Any) -> Any:
    """Call the function with the injected parameters that the caller left out. An `async def` returns a coroutine.

    `context`: that of the running task, or None outside tasks.
    """
    given = arguments.passed_directly(args, kwargs)
    name = arguments.context_parameter
    fixed = {} if name is None or name in given else {name: context}
    if fixed and context is None:
        raise TypeError(
            f"{name_of(fn)}() needs its context {name!r} when it is called outside a running task; pass one: "
            f"relier.testing.context() makes one for tests"
        )
    if given.issuperset(arguments.dependencies):
        args, kwargs = arguments.with_injected(args, kwargs, fixed)
        return fn(*args, **kwargs)
    on_loop = inspect.iscoroutinefunction(fn)
    if name in given:  # providers get the context that the caller passed, too
        context = next(filter(is_task_context, (*args, *kwargs.values())), context)
    provided = Dependencies(arguments, context, on_loop=on_loop, given=given)
    call = (arguments, fn, args, kwargs, fixed, provided)
    return _call_on_loop(*call) if on_loop else _call_here(*call)


async def _call_on_loop(
    arguments: Arguments, fn: Callable[..., Any], args: Args, kwargs: Kwargs, fixed: Kwargs, provided: Dependencies
) -> Any:
    async with provided:
        args, kwargs = arguments.with_injected(args, kwargs, fixed | provided.values)
        return await fn(*args, **kwargs)


def _call_here(
    arguments: Arguments, fn: Callable[..., Any], args: Args, kwargs: Kwargs, fixed: Kwargs, provided: Dependencies
) -> Any:
    if provided.for_loop:
        provider = async_provider(arguments.dependencies[provided.for_loop[0]])
        raise ConfigurationError(
            f"{name_of(fn)}() is a plain function, so a direct call cannot wait for its async dependency "
            f"{name_of(provider or fn)}; pass {provided.for_loop[0]}=…, or push the task"
        )
    with provided:
        args, kwargs = arguments.with_injected(args, kwargs, fixed | provided.values)
        return fn(*args, **kwargs)
