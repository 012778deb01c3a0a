"""Run the body of an adopted `async def` task, which plain Celery cannot run.

The body runs on an event loop, while the thread or process that Celery gave to the task waits. In a pool of processes,
each process has its own loop. In other pools, the bodies share the worker's loop, and the number of pool slots limits
how many run at once. `self.request` and `current_task` are then found by the coroutine's context, not by its thread.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any

from celery.exceptions import Reject

from relier import background
from relier.celery.compat import task_stack


class ContextStack:
    """Replace Celery's LocalStack with a stack that is local to a context: a coroutine sees what its caller pushed."""

    def __init__(self) -> None:
        self._items: ContextVar[tuple[Any, ...]] = ContextVar("relier_celery_requests", default=())

    def push(self, item: Any) -> list[Any]:
        self._items.set((*self._items.get(), item))
        return self.stack

    def pop(self) -> Any:
        *rest, last = self._items.get() or (None,)
        self._items.set(tuple(rest))
        return last

    @property
    def stack(self) -> list[Any]:
        return list(self._items.get())

    @property
    def top(self) -> Any:
        items = self._items.get()
        return items[-1] if items else None

    def __len__(self) -> int:
        return len(self._items.get())


class SharedLoop:
    """Hold the worker's event loop, for tasks that run in the worker's own process."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def share(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self._pid = loop, os.getpid()
        use_context_for_current_tasks()

    @property
    def in_this_process(self) -> asyncio.AbstractEventLoop | None:
        """Return the loop, or None in a process that was forked from the worker."""
        return self.loop if self._pid == os.getpid() else None


shared_loop = SharedLoop()


_stack_owner: ContextVar[object] = ContextVar("relier_celery_current_tasks", default=None)


@cache
def use_context_for_current_tasks() -> None:
    """Give each coroutine its own stack of current tasks. Celery has one per thread."""
    by_thread = getattr(task_stack, "__ident_func__", None)  # absent with USE_FAST_LOCALS
    if by_thread is not None:
        task_stack.__ident_func__ = lambda: _stack_owner.get() or by_thread()


@contextmanager
def keep_current_tasks() -> Iterator[None]:
    """Copy this thread's stack of current tasks to coroutines that the block starts, until the block ends."""
    tasks = list(task_stack.stack)
    token = _stack_owner.set(object())
    try:
        for task in tasks:
            task_stack.push(task)
        yield
    finally:
        for _ in tasks:
            task_stack.pop()
        _stack_owner.reset(token)


@cache
def _process_loop(pid: int) -> asyncio.AbstractEventLoop:  # noqa: ARG001 - one per process, also after a fork
    return asyncio.new_event_loop()


def run_coroutine(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, from a thread that may wait."""
    loop = shared_loop.in_this_process
    if loop is not None:
        with keep_current_tasks():
            return asyncio.run_coroutine_threadsafe(_run_as_task_body(work), loop).result()
    return background.run_until_done(_process_loop(os.getpid()), work)


async def _run_as_task_body(work: Coroutine[Any, Any, Any]) -> Any:
    code, task = background.enter_attempt_code(), asyncio.current_task()
    if task is not None:
        background.hide_task(task)
    try:
        return await work
    except asyncio.CancelledError:
        if code.disturbed:
            raise Reject(
                "the code of another task cancelled a part of this task; the task runs again", requeue=True
            ) from None
        raise


def running_coroutines(body: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a task body: if it returns a coroutine, run that and return its result."""

    @wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        result = body(*args, **kwargs)
        return run_coroutine(result) if inspect.iscoroutine(result) else result

    return run


def is_coroutine_task(task: Any) -> bool:
    """Return whether a task is `async def`.

    With `autoretry_for`, Celery wraps the function in a plain one and keeps the original. In that case, look at the
    original.
    """
    return any(
        inspect.iscoroutinefunction(inspect.unwrap(fn)) for fn in (task.run, getattr(task, "_orig_run", None)) if fn
    )
