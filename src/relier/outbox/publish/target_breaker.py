"""Stops a relay from trying against a target that is away. It belongs to one relay; nobody else's trouble opens it."""

from __future__ import annotations

import time
from collections.abc import Callable

OUTAGES = 2  # in a row, without a success between


class TargetBreaker:
    """closed: go on. open: wait. half-open: one row may try, and decides."""

    def __init__(self, cooldown: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._cooldown = cooldown
        self._clock = clock
        self._outages = 0
        self._until = 0.0

    @property
    def state(self) -> str:
        if self._outages < OUTAGES:
            return "closed"
        return "open" if self._clock() < self._until else "half-open"

    @property
    def wait(self) -> float:
        """How long until something may be tried (s)."""
        return max(0.0, self._until - self._clock()) if self.state == "open" else 0.0

    def sent(self) -> bool:
        """Something got through. True: that closed it."""
        was_open, self._outages = self._outages >= OUTAGES, 0
        return was_open

    def outage(self) -> bool:
        """Nothing does. True: that opened it, or opened it again."""
        self._outages += 1
        if self._outages >= OUTAGES:
            self._until = self._clock() + self._cooldown
        return self._outages >= OUTAGES
