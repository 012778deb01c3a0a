"""Pass attempts from the worker's loop, which calls the ledger, to Celery's main thread, which feeds the pool.

A `Job` is one attempt on its way through Celery. The loop passes it on, the main thread takes it, and any thread of
Celery may settle it. The first outcome counts. When Celery loses its broker, it forgets the jobs that its pool has not
started. Such jobs are handed back to the ledger, and so are jobs that the main thread does not take.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from relier.run.attempt import Attempt
from relier.run.outcome import Died, HandBack, Outcome

PROCESS_START_S = 5.0  # how long a process may take to start a job; usually it takes some milliseconds
THREAD_START_S = 0.5  # how long a pool of threads may take to report that it has started a job
RESULT_GRACE_S = 0.1  # a process may have sent its result just before it died


class Job:
    """Carry one attempt through Celery.

    request       Celery's request, once there is one
    in_pool       the job was passed to the pool
    pid           the process that has started the job, or whose thread has
    ended         the job has an outcome and must not start any more
    rate_limited  the job waits for its rate limit, not for the pool
    cause         how the job's process ended, if anything reported it
    own_exit      how the task itself ended the process; the pool's exit code does not show that
    exhausted     why the task must not run again: it has died too often, and Celery only reports its failure
    cancelled     somebody asked to cancel the task before the pool started it
    """

    def __init__(self, attempt: Attempt, loop: asyncio.AbstractEventLoop, on_start: Callable[[Job], None]) -> None:
        self.attempt = attempt
        self.pid = 0
        self.rate_limited = False
        self.request: Any = None
        self.ended = False
        self.in_pool = False
        self.cause = ""
        self.own_exit = ""
        self.exhausted = ""
        self.cancelled = False
        self.future: asyncio.Future[Outcome] = loop.create_future()
        self._loop = loop
        self._on_start = on_start

    @property
    def record_id(self) -> str:
        return self.attempt.claimed.record.id

    def started(self, pid: int) -> None:
        """Record that the pool has started the job. Call this from any thread."""
        self.pid = pid
        self._call(self._on_start, self)

    def settle(self, outcome: Outcome) -> None:
        """Set the job's outcome, unless it has one. Call this from any thread."""
        self.ended = True
        self._call(self._settle, outcome)

    def process_died(self, cause: str, grace: float = RESULT_GRACE_S) -> None:
        """Settle the job as died after `grace` seconds, unless its process sent a result before it died.

        `cause` may be empty: several reports may arrive, and not all of them know how the process ended.
        """
        self.cause = cause or self.cause
        self._call(self._loop.call_later, grace, self._die)

    def _die(self) -> None:
        self.ended = True
        self._settle(Died(self.own_exit or self.cause or "its process is gone"))

    def _settle(self, outcome: Outcome) -> None:
        if not self.future.done():
            self.future.set_result(outcome)

    def _call(self, act: Callable[..., Any], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: the attempt was handed back, or its lease expires
            self._loop.call_soon_threadsafe(act, *args)


class Jobs:
    """Hold the jobs on their way. The loop calls `give`. Celery's main thread calls `take` when `fileno` wakes it.

    `main_thread_ready`: the main thread has started far enough to take jobs.
    """

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        # Not a pipe: eventlet's `os.read` blocks even on a non-blocking pipe.
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        for end in (self._read, self._write):
            weakref.finalize(self, end.close).atexit = False
        self._requested_at: float | None = None
        self.main_thread_ready = False
        self.in_progress: set[Job] = set()
        self.dead_pids: set[int] = set()  # pool processes whose death Celery has not noticed yet

    def fileno(self) -> int:
        return self._read.fileno()

    def give(self, job: Job) -> None:
        self.in_progress.add(job)
        self._waiting.append(job)
        self.request_pickup()

    def request_pickup(self) -> None:
        """Wake the main thread, and remember since when it has taken nothing."""
        if self._requested_at is None:
            self._requested_at = time.monotonic()
        self.wake()

    def call_in_main_thread(self, act: Callable[[], None]) -> None:
        """Call `act` in Celery's main thread, before it takes jobs that are given later."""
        self._calls.append(act)
        self.wake()

    def wake(self) -> None:
        """Wake the main thread. Call this from any thread."""
        with contextlib.suppress(BlockingIOError):  # the buffer is full of wake-ups already
            self._write.send(b"1")

    def take_calls(self) -> Iterator[Callable[[], None]]:
        while self._calls:
            yield self._calls.popleft()

    def take(self) -> list[Job]:
        """Return the jobs that were given since the last call. Never block."""
        with contextlib.suppress(BlockingIOError):
            while self._read.recv(4096):
                pass
        self._requested_at = None
        return self._pop_all()

    def take_back(self) -> list[Job]:
        """Return the jobs that the main thread has not taken. Call this on the loop.

        The main thread still counts as unresponsive until it takes something.
        """
        return self._pop_all()

    def _pop_all(self) -> list[Job]:
        popped = []
        while True:
            try:
                popped.append(self._waiting.popleft())
            except IndexError:  # both threads may pop at once
                return popped

    def unresponsive_for(self, seconds: float) -> bool:
        """Return whether the main thread has taken nothing for this long, although a pickup was requested."""
        requested_at = self._requested_at
        return requested_at is not None and time.monotonic() - requested_at > seconds

    def count_rate_limited(self) -> int:
        """Return how many jobs wait for their rate limit."""
        return sum(job.rate_limited and not job.pid for job in self.in_progress)

    def done(self, job: Job) -> None:
        self.in_progress.discard(job)

    def hand_back_unstarted(self, within: float) -> None:
        """Hand back every job that has not started, because Celery shuts down. Call this on the loop.

        The pool may have started some of its jobs. It gets `within` seconds to report them.
        """
        self.take_back()
        for job in list(self.in_progress):
            if not job.in_pool:
                job.settle(HandBack())
            elif not job.pid:
                asyncio.get_running_loop().call_later(within, self._hand_back_unless_started, job)

    @staticmethod
    def _hand_back_unless_started(job: Job) -> None:
        if not job.pid:
            job.settle(HandBack())

    def hand_back_forgotten(self) -> None:
        """Hand back the jobs that Celery took and then forgot before its pool started them.

        Call this in the main thread.
        """
        for job in list(self.in_progress):
            if job.request is not None and not job.pid:
                job.settle(HandBack())
