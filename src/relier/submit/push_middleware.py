"""Wrap pushes in functions of the application's own, such as one that stamps a tenant or opens a span.

    async def to_tenant_queue(call_next, push):
        options = dataclasses.replace(push.options, queue=f"tenant-{current_tenant()}")
        return await call_next(dataclasses.replace(push, options=options))

    use_middleware(push=[to_tenant_queue])

The first function of the application is the outermost; a task's own functions come after those for all tasks. Each may
await `call_next` and nothing else, because a blocking `push` runs them without an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from relier.errors import ConfigurationError
from relier.options import PushMiddleware, PushOptions, check_middleware
from relier.submit.push import CallArguments

if TYPE_CHECKING:
    from relier.task import RlTask

Send = Callable[["Push"], Coroutine[Any, Any, list[Any]]]


@dataclass(frozen=True, slots=True)
class Push:
    """Describe a push to middleware. `calls` are (args, kwargs): one for `push`, any number for `push_many`.

    `in_transaction`: the push is part of a database transaction, `where` is the session, connection or Django alias.
    """

    task: RlTask[Any, Any]
    calls: tuple[CallArguments, ...]
    options: PushOptions
    in_transaction: bool = False
    where: Any = None


_for_all_tasks: list[PushMiddleware] = []
_innermost: list[PushMiddleware] = []


def add_push_middleware(functions: Sequence[PushMiddleware]) -> None:
    """Wrap the pushes of all tasks in these functions. A function that was added before is not added again."""
    for each in functions:
        check_middleware("push middleware", each)
        if each not in _for_all_tasks:
            _for_all_tasks.append(each)


@contextmanager
def innermost(function: PushMiddleware) -> Iterator[None]:
    """Call this function last of all inside the block. The testing kit replaces sending with it."""
    _innermost.append(function)
    try:
        yield
    finally:
        _innermost.remove(function)


def push_middleware_of(task: RlTask[Any, Any]) -> tuple[PushMiddleware, ...]:
    """Return the functions that wrap pushes of this task, the outermost first."""
    own = task.options.push_middleware
    return (*_for_all_tasks, *own, *_innermost) if own or _for_all_tasks or _innermost else ()


async def send_through(middleware: Sequence[PushMiddleware], push: Push, send: Send) -> list[Any]:
    """Return the receipts of a push that passes through the middleware before it is sent."""
    for each in reversed(middleware):
        send = partial(each, send)
    receipts = await send(push)
    if not isinstance(receipts, list) or (push.calls and not receipts):
        raise ConfigurationError(
            f"the middleware of task {push.task.name} returned {receipts!r:.60} for a push; return what call_next "
            f"returned, a list of receipts. Whether the task was pushed depends on what the middleware did"
        )
    return receipts


def send_through_sync(middleware: Sequence[PushMiddleware], push: Push, send: Send) -> list[Any]:
    """Send a push through its middleware in blocking code, where `send` never suspends."""
    sending: Coroutine[Any, Any, list[Any]] = send_through(middleware, push, send)
    try:
        sending.send(None)
    except StopIteration as done:
        receipts: list[Any] = done.value
        return receipts
    sending.close()
    raise ConfigurationError(
        f"the push middleware of task {push.task.name} waited for something other than call_next, which a blocking "
        f"push cannot do; use apush, or do not wait in push middleware; whether the task was pushed depends on where "
        f"the middleware waited"
    )
