"""Protect the asyncio tasks of a worker from the code of attempts on the same loop.

`asyncio.all_tasks()` shows a task's code everything that runs on its loop, and some code cancels whatever it finds
there. So on loops that run attempts, our own tasks and those that run attempts are hidden from `all_tasks()`. Tasks
that an attempt starts itself (`gather`, `create_task`) do appear. Relier notes which attempt started them: if another
attempt cancels one of them and that ends the attempt, the attempt has not failed. Not covered: code that holds a
reference to one of our tasks and cancels that task.
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

# The loops that run attempts, each with the context in which its worker was started.
_contexts: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Context] = weakref.WeakKeyDictionary()
_hidden: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()


class AttemptCode:
    """Identify the code of one attempt, to know which asyncio tasks it started."""

    __slots__ = ("disturbed",)

    def __init__(self) -> None:
        self.disturbed = False  # the code of another attempt cancelled a task of this one


_attempt_code: ContextVar[AttemptCode | None] = ContextVar("relier_attempt_code", default=None)


class AttemptSubtask(asyncio.Task[T]):
    """Represent an asyncio task that the code of an attempt started."""

    def __init__(self, work: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any) -> None:
        super().__init__(work, **options)
        self.starter = _attempt_code.get() or AttemptCode()

    def cancel(self, msg: Any | None = None) -> bool:
        caller = _attempt_code.get()
        if caller is not None and caller is not self.starter:
            self.starter.disturbed = True
        return super().cancel(msg)


def start(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start an asyncio task that belongs to Relier, not to an attempt.

    On a loop that runs attempts, the task gets the context in which the loop's worker was started, not that of an
    attempt: a connection that an attempt happened to open must not keep that attempt alive.
    """
    context = _contexts.get(loop)
    return loop.create_task(work) if context is None else hide_task(context.run(loop.create_task, work))


def start_attempt(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start the task that runs an attempt."""
    return hide_task(asyncio.Task(work, loop=loop))


def enter_attempt_code() -> AttemptCode:
    """Mark where the code of an attempt begins. The tasks started from here on belong to that attempt."""
    code = AttemptCode()
    _attempt_code.set(code)
    return code


def hide_task(task: asyncio.Task[T]) -> asyncio.Task[T]:
    """Remove a task from `asyncio.all_tasks()`."""
    asyncio._unregister_task(task)  # noqa: SLF001 - documented for those who extend asyncio
    _hidden.add(task)
    return task


def run_attempts_on(loop: asyncio.AbstractEventLoop) -> None:
    """Prepare a loop that will run attempts: hide our own tasks, and note which attempt starts which other task.

    On a loop that already has a task factory, nothing can be noted.
    """
    _contexts[loop] = copy_context()
    if loop.get_task_factory() is None:
        loop.set_task_factory(_make_task)


def _make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    kind = asyncio.Task if _attempt_code.get() is None else AttemptSubtask
    return kind(work, loop=loop, **options)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` like `asyncio.run`, but to its end, even if a task's code stops the loop."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        try:
            return run_until_done(loop, main)
        finally:
            for task in [task for task in _hidden if task.get_loop() is loop and not task.done()]:
                asyncio._register_task(task)  # noqa: SLF001 - the runner cancels what it finds


def run_until_done(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, T]) -> T:
    """Run the loop until `main` has ended, even if a task's code stops the loop."""
    run_attempts_on(loop)
    task = hide_task(loop.create_task(main))  # in the caller's context: Celery's coroutines need their request
    while not task.done():
        try:
            loop.run_until_complete(task)
        except RuntimeError:
            if task.done():
                raise
            log.warning("a task stopped the event loop of its worker; the worker continues")
    return task.result()
