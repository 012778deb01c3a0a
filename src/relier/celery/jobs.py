"""Between the worker's loop, which speaks to the ledger, and Celery's main thread, which feeds the pool.

A `Job` is one attempt on its way through Celery: given in the loop, taken in the main thread, settled from wherever
Celery reports its end. The first end counts. Celery forgets what its pool has not begun when it loses its broker; such
jobs are handed back to the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from relier.run.attempt import Attempt
from relier.run.outcome import HandBack, Outcome


class Job:
    """`pid`: the pool process that runs it, once one does. `request`: Celery's, once there is one."""

    def __init__(self, attempt: Attempt, loop: asyncio.AbstractEventLoop, on_start: Callable[[Job], None]) -> None:
        self.attempt = attempt
        self.pid = 0
        self.request: Any = None
        self.future: asyncio.Future[Outcome] = loop.create_future()
        self._loop = loop
        self._on_start = on_start

    @property
    def record_id(self) -> str:
        return self.attempt.claimed.record.id

    def started(self, pid: int) -> None:
        """The pool has begun with it; from any thread."""
        self.pid = pid
        self._call(self._on_start, self)

    def settle(self, outcome: Outcome) -> None:
        """It has come to this end; from any thread."""
        self._call(self._settle, outcome)

    def _settle(self, outcome: Outcome) -> None:
        if not self.future.done():
            self.future.set_result(outcome)

    def _call(self, act: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: the attempt is handed back, or its lease runs out
            self._loop.call_soon_threadsafe(act, *args)


class Jobs:
    """Those on their way. `give` in the loop, `take` in Celery's main thread, which `fileno` wakes."""

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._given = time.monotonic()
        self.under_way: set[Job] = set()
        self.died: set[int] = set()  # pool processes that Celery has not missed yet

    def fileno(self) -> int:
        return self._read

    def give(self, job: Job) -> None:
        self.under_way.add(job)
        if not self._waiting:
            self._given = time.monotonic()
        self._waiting.append(job)
        self.wake()

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full of wake-ups: one more makes no difference
            os.write(self._write, b"1")

    def take(self) -> list[Job]:
        """What was given since; never blocks."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass
        taken = []
        while self._waiting:
            taken.append(self._waiting.popleft())
        return taken

    def waits_since(self, seconds: float) -> bool:
        """Whether nobody has taken anything for so long, though there was something."""
        return bool(self._waiting) and time.monotonic() - self._given > seconds

    def done(self, job: Job) -> None:
        self.under_way.discard(job)

    def forget_unstarted(self) -> None:
        """Celery has: whoever has not begun goes back to the ledger."""
        self.take()
        for job in list(self.under_way):
            if not job.pid:
                job.settle(HandBack())

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)
