"""Adopted tasks that are `async def`, which plain Celery cannot run: their body runs on an event loop, while the thread
or process that Celery gave them waits.

In a pool of processes each has a loop for its life. In the others the bodies share the worker's own loop, so that as
many run at once as the pool has slots; `self.request` and `current_task` are then found by the coroutine's context, not
by its thread.
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

from celery._state import _task_stack
from celery.exceptions import Reject

from relier import background


class ContextStack:
    """Celery's LocalStack, local to a context: a coroutine sees what its caller pushed."""

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
    """The worker's loop, where tasks run in its own process."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def share(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self._pid = loop, os.getpid()
        find_current_tasks_by_context()

    @property
    def here(self) -> asyncio.AbstractEventLoop | None:
        return self.loop if self._pid == os.getpid() else None


shared_loop = SharedLoop()


_whose: ContextVar[object] = ContextVar("relier_celery_current_tasks", default=None)


@cache
def find_current_tasks_by_context() -> None:
    """Celery's stack of current tasks is one per thread: let a coroutine have one of its own."""
    by_thread = getattr(_task_stack, "__ident_func__", None)  # with USE_FAST_LOCALS it has none
    if by_thread is not None:
        _task_stack.__ident_func__ = lambda: _whose.get() or by_thread()


@contextmanager
def current_tasks_kept() -> Iterator[None]:
    """What is started inside has the current tasks of this thread, wherever it runs, until this ends."""
    tasks = list(_task_stack.stack)
    token = _whose.set(object())
    try:
        for task in tasks:
            _task_stack.push(task)
        yield
    finally:
        for _ in tasks:
            _task_stack.pop()
        _whose.reset(token)


@cache
def _own_loop(pid: int) -> asyncio.AbstractEventLoop:  # noqa: ARG001 - one per process, also after a fork
    return asyncio.new_event_loop()


def wait_for(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, from a thread that may wait."""
    loop = shared_loop.here
    if loop is not None:
        with current_tasks_kept():
            return asyncio.run_coroutine_threadsafe(_in_body(work), loop).result()
    return background.run_until_done(_own_loop(os.getpid()), work)


async def _in_body(work: Coroutine[Any, Any, Any]) -> Any:
    body, task = background.enter_body(), asyncio.current_task()
    if task is not None:
        background.hide(task)
    try:
        return await work
    except asyncio.CancelledError:
        if body.disturbed:
            raise Reject("another task of its worker cancelled a part of it; it is run again", requeue=True) from None
        raise


def awaited(body: Callable[..., Any]) -> Callable[..., Any]:
    """A body whose coroutine is run, as its caller expects a result."""

    @wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        result = body(*args, **kwargs)
        return wait_for(result) if inspect.iscoroutine(result) else result

    return run


def is_coroutine_task(task: Any) -> bool:
    """`autoretry_for` wraps the function in a plain one, and keeps the original."""
    return any(
        inspect.iscoroutinefunction(inspect.unwrap(fn)) for fn in (task.run, getattr(task, "_orig_run", None)) if fn
    )
