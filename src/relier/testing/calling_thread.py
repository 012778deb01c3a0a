"""Run tasks for a blocking caller: the event loop in another thread, the bodies of `def` tasks in the caller's own.

So a `def` uses the database connection of the test, which libraries keep for each thread, and no event loop runs where
it runs, as in a worker.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

from relier.run.threads import Threads, Work

T = TypeVar("T")


class CallerThread(Threads):
    """Run the bodies of `def` tasks in the thread that waits for them in `serve`, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._bodies: queue.SimpleQueue[Work | None] = queue.SimpleQueue()

    def start(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> Work:
        work = Work(call, loop)
        self._bodies.put(work)
        return work

    def serve(self) -> None:
        """Run bodies until `end` is called."""
        while (work := self._bodies.get()) is not None:
            work.run()

    def end(self) -> None:
        self._bodies.put(None)


def run_here(
    work: Callable[[Threads], Coroutine[Any, Any, T]], run: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run
) -> T:
    """Run a coroutine to its end in another thread, with `run`, but the bodies of `def` tasks in this thread."""
    bodies = CallerThread()
    values: list[T] = []
    errors: list[BaseException] = []

    def run_all() -> None:
        try:
            values.append(run(work(bodies)))
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            errors.append(error)
        finally:
            bodies.end()

    thread = threading.Thread(target=copy_context().run, args=(run_all,), name="relier-test-loop", daemon=True)
    thread.start()
    bodies.serve()
    thread.join()
    if errors:
        raise errors[0]
    return values[0]
