"""Between the worker's loop, which speaks to the ledger, and Celery's main thread, which feeds the pool.

A `Job` is one attempt on its way through Celery: given in the loop, taken in the main thread, settled from wherever
Celery reports its end. The first end counts. Celery forgets what its pool has not begun when it loses its broker; such
jobs are handed back to the ledger, and so are those that its main thread does not take.
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

BEGIN_S = 5.0  # so long a process may take to begin with what it was given; mostly it is some milliseconds
ACCEPT_S = 0.5  # so long a pool of threads may take to tell that it has begun
RESULT_GRACE_S = 0.1  # a process that is gone may have told its result just before


class Job:
    """One attempt on its way.

    request   Celery's, once there is one
    applied   it is with the pool
    pid       of the process, or of the one whose thread it is, that has begun with it
    ended     it has come to an end, and must not begin any more
    limited   it waits for its rate limit, not for the pool
    cause     how its process ended, where somebody has told
    said      how it ended its process itself: of that the pool's own exit code knows nothing
    lost      why it is not to run any more: it has died too often; Celery is told of its end instead
    cancelled a person asked for it to end, before the pool had begun with it
    """

    def __init__(self, attempt: Attempt, loop: asyncio.AbstractEventLoop, on_start: Callable[[Job], None]) -> None:
        self.attempt = attempt
        self.pid = 0
        self.limited = False
        self.request: Any = None
        self.ended = False
        self.applied = False
        self.cause = ""
        self.said = ""
        self.lost = ""
        self.cancelled = False
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
        self.ended = True
        self._call(self._settle, outcome)

    def died(self, cause: str, grace: float = RESULT_GRACE_S) -> None:
        """Its process is gone; who tells may know how. What that process told before counts."""
        self.cause = cause or self.cause
        self._call(self._loop.call_later, grace, self._die)

    def _die(self) -> None:
        self.ended = True
        self._settle(Died(self.said or self.cause or "its process is gone"))

    def _settle(self, outcome: Outcome) -> None:
        if not self.future.done():
            self.future.set_result(outcome)

    def _call(self, act: Callable[..., Any], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: the attempt is handed back, or its lease runs out
            self._loop.call_soon_threadsafe(act, *args)


class Jobs:
    """Those on their way. `give` in the loop, `take` in Celery's main thread, which `fileno` wakes.

    `listening`: the main thread has come so far that it will take some.
    """

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._read, self._write = socket.socketpair()  # not a pipe: eventlet's `os.read` waits also where it must not
        self._read.setblocking(False)
        self._write.setblocking(False)
        for end in (self._read, self._write):
            weakref.finalize(self, end.close).atexit = False
        self._asked: float | None = None
        self.listening = False
        self.under_way: set[Job] = set()
        self.died: set[int] = set()  # pool processes that Celery has not missed yet

    def fileno(self) -> int:
        return self._read.fileno()

    def give(self, job: Job) -> None:
        self.under_way.add(job)
        self._waiting.append(job)
        self.ask()

    def ask(self) -> None:
        """Make the main thread look, and remember since when it has not."""
        if self._asked is None:
            self._asked = time.monotonic()
        self.wake()

    def call(self, act: Callable[[], None]) -> None:
        """Let Celery's main thread do this, before it takes what is given later."""
        self._calls.append(act)
        self.wake()

    def wake(self) -> None:
        """Make the main thread look; from any thread."""
        with contextlib.suppress(BlockingIOError):  # full of wake-ups: one more makes no difference
            self._write.send(b"1")

    def calls(self) -> Iterator[Callable[[], None]]:
        while self._calls:
            yield self._calls.popleft()

    def take(self) -> list[Job]:
        """What was given since; never blocks."""
        with contextlib.suppress(BlockingIOError):
            while self._read.recv(4096):
                pass
        self._asked = None
        return self._pop_all()

    def take_back(self) -> list[Job]:
        """In the loop: what the main thread has not taken. It stays deaf until it takes something."""
        return self._pop_all()

    def _pop_all(self) -> list[Job]:
        popped = []
        while True:
            try:
                popped.append(self._waiting.popleft())
            except IndexError:  # both sides may be at it
                return popped

    def deaf_since(self, seconds: float) -> bool:
        """Whether the main thread has taken nothing for so long, though it was asked."""
        asked = self._asked
        return asked is not None and time.monotonic() - asked > seconds

    def limited(self) -> int:
        """How many wait for their rate limit."""
        return sum(job.limited and not job.pid for job in self.under_way)

    def done(self, job: Job) -> None:
        self.under_way.discard(job)

    def forget_unstarted(self, within: float) -> None:
        """Celery leaves: whoever has not begun goes back to the ledger. In the loop. The pool may have begun with what
        it has, and has so many seconds to tell."""
        self.take_back()
        for job in list(self.under_way):
            if not job.applied:
                job.settle(HandBack())
            elif not job.pid:
                asyncio.get_running_loop().call_later(within, self._forget, job)

    @staticmethod
    def _forget(job: Job) -> None:
        if not job.pid:
            job.settle(HandBack())

    def forget_taken(self) -> None:
        """Celery has forgotten what it took and its pool has not begun. In its main thread."""
        for job in list(self.under_way):
            if job.request is not None and not job.pid:
                job.settle(HandBack())
