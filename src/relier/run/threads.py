"""Run `def` tasks in threads. Threads start when needed and are reused; an exception raised inside one stops it."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

from relier.run.forks import end_copy


class StopThread(BaseException):
    """Stop a task's thread from inside. Derived from BaseException so that `except Exception` does not swallow it."""


class Work:
    """Run one call in one thread. `on_free` is called before the caller learns the result: the next call must find this
    thread, not start another one."""

    def __init__(
        self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop, on_free: Callable[[], None] = lambda: None
    ) -> None:
        self._call = call
        self._on_free = on_free
        self._context = contextvars.copy_context()
        self._loop = loop
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._stopped = False
        self.future: asyncio.Future[Any] = loop.create_future()

    def run(self) -> None:
        value, error, process = None, None, os.getpid()
        try:
            with self._lock:
                self._thread = threading.get_ident()
            value = self._context.run(self._begin)
        except BaseException as raised:  # noqa: BLE001 - whatever a task raises is its outcome
            error = raised
        # Once `_thread` is None, a late stop cannot hit the next task of this thread.
        while True:
            try:
                if os.getpid() != process:
                    end_copy()
                with self._lock:
                    self._thread = None
                break
            except StopThread:  # the stop arrived just here
                continue
        self._on_free()
        self._deliver(value, error)

    def _begin(self) -> Any:
        if self._stopped:
            raise StopThread
        return self._call()

    def stop(self) -> None:
        """Raise StopThread in the thread at its next Python instruction. A call that blocks in C must return first."""
        with self._lock:
            self._stopped = True
            if self._thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(StopThread))

    def _deliver(self, value: Any, error: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle, value, error)
        except RuntimeError:  # the loop has ended: nobody waits for the result
            return

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(value)
        elif isinstance(error, StopIteration):  # a future cannot hold it
            self.future.set_exception(RuntimeError(f"the task raised StopIteration({error.value!r:.80})"))
        else:
            self.future.set_exception(error)


class Threads:
    """Provide one thread for each call that runs at the same time.

    The threads are daemons, so one that never ends does not delay the exit.
    """

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._count = 0

    def start(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> Work:
        work = Work(call, loop, self._count_as_idle)
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            else:
                self._count += 1
                threading.Thread(target=self._serve, name=f"relier-task-{self._count}", daemon=True).start()
        self._works.put(work)
        return work

    def close(self) -> None:
        for _ in range(self._count):
            self._works.put(None)

    def _serve(self) -> None:
        while True:
            work = self._works.get()
            if work is None:
                return
            work.run()
            del work

    def _count_as_idle(self) -> None:
        with self._lock:
            self._idle += 1
