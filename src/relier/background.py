"""Asyncio tasks that the code of one attempt must not end for the others on its loop.

`asyncio.all_tasks()` shows a task's code everything that runs on its loop, and some code cancels whatever it finds
there. So on the loops that run attempts, our own tasks and those that run attempts do not appear in it. What an attempt
starts itself (`gather`, `create_task`) does appear, and remembers whose it is: an attempt that ends because another one
cancelled a part of it has not failed. Not covered: code that keeps a reference to a task of ours and cancels that.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
log = logging.getLogger("relier.worker")

# The loops that run attempts, each with the context its worker was started in.
_contexts: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Context] = weakref.WeakKeyDictionary()
_hidden: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()


class Body:
    """The code of one attempt."""

    __slots__ = ("disturbed",)

    def __init__(self) -> None:
        self.disturbed = False  # the code of another attempt cancelled a part of this one


_body: ContextVar[Body | None] = ContextVar("relier_body", default=None)


class BodyTask(asyncio.Task[T]):
    """An asyncio task that the code of an attempt started."""

    def __init__(self, work: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any) -> None:
        super().__init__(work, **options)
        self.body = _body.get() or Body()

    def cancel(self, msg: Any | None = None) -> bool:
        caller = _body.get()
        if caller is not None and caller is not self.body:
            self.body.disturbed = True
        return super().cancel(msg)


def start(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task of our own. On a loop that runs attempts it gets the context that the loop's worker was started in,
    not that of an attempt: a connection that an attempt happened to open must not keep that attempt alive."""
    context = _contexts.get(loop)
    return loop.create_task(work) if context is None else hide(context.run(loop.create_task, work))


def start_body(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start the task that runs an attempt."""
    return hide(asyncio.Task(work, loop=loop))


def enter_body() -> Body:
    """Called where the code of an attempt begins: what it starts from here on is its own."""
    body = Body()
    _body.set(body)
    return body


def hide(task: asyncio.Task[T]) -> asyncio.Task[T]:
    """Take a task out of `asyncio.all_tasks()`."""
    asyncio._unregister_task(task)  # noqa: SLF001 - documented for those who extend asyncio
    _hidden.add(task)
    return task


def runs_bodies(loop: asyncio.AbstractEventLoop) -> None:
    """From here on our tasks on this loop are hidden, and others remember which attempt started them, unless the loop
    makes tasks of its own kind."""
    _contexts[loop] = copy_context()
    if loop.get_task_factory() is None:
        loop.set_task_factory(_make)


def _make(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    kind = asyncio.Task if _body.get() is None else BodyTask
    return kind(work, loop=loop, **options)


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, for code that must outlast what runs on its loop."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        try:
            return run_until_done(loop, main)
        finally:
            for task in [task for task in _hidden if task.get_loop() is loop and not task.done()]:
                asyncio._register_task(task)  # noqa: SLF001 - the runner cancels what it finds


def run_until_done(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, T]) -> T:
    """Run the loop until `main` has ended, also where a task's code stops the loop."""
    runs_bodies(loop)
    task = hide(loop.create_task(main))  # in the caller's own context: a coroutine of Celery's task knows its request
    while not task.done():
        try:
            loop.run_until_complete(task)
        except RuntimeError:
            if task.done():
                raise
            log.warning("a task stopped the event loop of its worker; the worker goes on")
    return task.result()
