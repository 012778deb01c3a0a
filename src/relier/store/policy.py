"""Decide about deadlines, retries and the circuit breaker, without IO: no sockets, no sleeping, an injected clock."""

from __future__ import annotations

import random
from collections.abc import Callable

from relier.errors import RedisConnectionError, RelierError

Clock = Callable[[], float]

FIRST_PAUSE = 0.1
SHORTEST_PAUSE = 0.02
LONGEST_PAUSE = 1.0


class AttemptError(Exception):
    """Say why one attempt failed, how to react, and which `error` the caller gets if every attempt fails.

    `retry`: another attempt makes sense. `new_lookup`: look up the master again first. `load_script`: load a script
    first, and try again without a pause. `sent`: the server may have run the request. It is False if the request was
    never sent, or if the server refused it.
    """

    def __init__(
        self,
        why: str,
        error: type[RelierError] = RedisConnectionError,
        *,
        retry: bool = True,
        new_lookup: bool = True,
        load_script: bool = False,
        sent: bool = True,
    ) -> None:
        super().__init__(why)
        self.error = error
        self.retry = retry
        self.new_lookup = new_lookup
        self.load_script = load_script
        self.sent = sent


class Deadline:
    """Mark when one call's time is up, on the monotonic clock."""

    __slots__ = ("_at", "_clock", "began")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self.began = clock()
        self._at = self.began + seconds

    def left(self) -> float:
        return max(0.0, self._at - self._clock())

    def within(self, seconds: float) -> float:
        """Return a timeout of `seconds`, shortened so that it ends with the deadline."""
        return min(seconds, self.left())


class RetrySchedule:
    """Count the attempts of one call, and say how long to wait before the next.

    Only an attempt whose answer was lost uses up one of the `retries`: the server may have run it. An attempt that did
    not reach the server, or that the server refused for now, is repeated until the deadline. Loading a script that the
    server does not have costs no attempt.
    """

    __slots__ = ("_lost", "_retries", "made")

    def __init__(self, retries: int) -> None:
        self.made = 0
        self._retries = retries
        self._lost = 0

    def failed(self, failure: AttemptError) -> None:
        """Count one failed attempt."""
        self.made += not failure.load_script
        self._lost += failure.sent

    def pause(self, failure: AttemptError, left: float) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up."""
        if not failure.retry or self._lost > self._retries or left <= 0:
            return None
        if failure.load_script or self.made == 1:  # usually an idle connection that the server had closed
            return 0.0
        if left < SHORTEST_PAUSE:
            return None
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self.made - 2, 10)) * random.uniform(0.5, 1.0)
        return min(pause, left / 2)  # try more often just before the deadline: the outage may just have ended


def more_informative(before: AttemptError | None, now: AttemptError, left: float) -> AttemptError:
    """Return the more informative of two errors: one from an attempt cut short by the deadline says less."""
    return now if before is None or before.load_script or left > 0 else before


class CircuitBreaker:
    """Refuse calls at once after `failures` failed attempts in a row; one call per `cooldown` may still try.

    That call is the half-open probe. If it succeeds, the breaker closes. If it fails or gets no answer, the breaker
    stays open. The breaker keeps callers from waiting on a dead server. It does not end calls already in flight: their
    deadline does.
    """

    def __init__(self, clock: Clock, failures: int, cooldown: float) -> None:
        self._clock = clock
        self._limit = failures
        self._cooldown = cooldown
        self._failed = 0
        self._next_try = 0.0

    @property
    def is_open(self) -> bool:
        """Return whether the last attempts have failed. Even then, the next probe may be due."""
        return self._failed >= self._limit

    @property
    def state(self) -> str:
        """Return `closed` (calls go ahead), `open` (calls are refused) or `half-open` (a probe is due)."""
        if not self.is_open:
            return "closed"
        return "open" if self.wait else "half-open"

    @property
    def wait(self) -> float:
        """Return the seconds until a call may go ahead."""
        return max(0.0, self._next_try - self._clock()) if self._failed >= self._limit else 0.0

    def refuses(self) -> float:
        """Return the seconds until the next probe, or 0 if the call may go ahead: then it is the probe."""
        if self._failed < self._limit:
            return 0.0
        wait = self.wait
        if not wait:
            self._next_try = self._clock() + self._cooldown
        return wait

    def succeeded(self) -> bool:
        """Record a success. Return whether it closed the breaker."""
        was_open, self._failed = self._failed >= self._limit, 0
        return was_open

    def failed(self) -> bool:
        """Record a failure. Return whether the breaker is open now."""
        self._failed += 1
        if self._failed >= self._limit:
            self._next_try = self._clock() + self._cooldown
        return self._failed >= self._limit
