"""Wrap the code of tasks in functions of the application's own, such as one that opens a span or a database session.

    async def timed(call_next, ctx):
        started = time.perf_counter()
        try:
            return await call_next(ctx)
        finally:
            report(ctx.task_name, time.perf_counter() - started)

    use_middleware(run=[timed])

`call_next` runs the rest and returns what the task returns, or raises what the task raises. A function may return
something else, raise, or not call `call_next` at all. It runs where the task's code runs: on the event loop of the
worker or of the isolated process, also around a `def`, which runs in a thread. Context variables that it sets reach the
task. The first function added is the outermost; a task's own functions (`@rl_task(middleware=[…])`) come inside those.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from relier.errors import ConfigurationError
from relier.options import PushMiddleware, RunMiddleware, check_middleware
from relier.submit.push_middleware import add_push_middleware

if TYPE_CHECKING:
    from relier.run.attempt import Attempt

_for_all_tasks: list[RunMiddleware] = []


def use_middleware(*, run: Sequence[RunMiddleware] = (), push: Sequence[PushMiddleware] = ()) -> None:
    """Wrap all tasks in the functions `run`, and all pushes in the functions `push`, in this order.

    Call this where your tasks are defined, so that every worker process and every producer does. A function that was
    added before is not added again.
    """
    for what, functions in (("run", run), ("push", push)):
        if not isinstance(functions, list | tuple):
            raise ConfigurationError(f"use_middleware({what}=…) takes a list of functions, not {functions!r:.60}")
    for each in run:
        check_middleware("run middleware", each)
        if each not in _for_all_tasks:
            _for_all_tasks.append(each)
    add_push_middleware(push)


def wrapped(attempt: Attempt, call: Callable[[Attempt], Coroutine[Any, Any, Any]]) -> Coroutine[Any, Any, Any]:
    """Return a call of the attempt's code, wrapped in its middleware."""
    own = attempt.task.options.middleware
    if not own and not _for_all_tasks:
        return call(attempt)

    async def innermost(ctx: Any) -> Any:
        if ctx is not attempt.ctx:
            raise ConfigurationError(
                f"a middleware of task {attempt.task.name} passed {ctx!r:.60} to call_next; pass the ctx that it got"
            )
        return await call(attempt)

    call_next: Callable[[Any], Coroutine[Any, Any, Any]] = innermost
    for each in reversed((*_for_all_tasks, *own)):
        call_next = partial(each, call_next)
    return call_next(attempt.ctx)
