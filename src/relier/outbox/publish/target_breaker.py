"""Stops a relay from trying a target that is away. Only outages of the same relay open the breaker."""

from __future__ import annotations

import time
from collections.abc import Callable

OUTAGES = 2  # consecutive outages that open the breaker


class TargetBreaker:
    """closed: send. open: wait. half-open: try one row, whose outcome decides."""

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
        """Return how long until a row may be tried (s)."""
        return max(0.0, self._until - self._clock()) if self.state == "open" else 0.0

    def sent(self) -> bool:
        """Record a success. Return whether it closed the breaker."""
        was_open, self._outages = self._outages >= OUTAGES, 0
        return was_open

    def outage(self) -> bool:
        """Record an outage. Return whether the breaker is now open."""
        self._outages += 1
        if self._outages >= OUTAGES:
            self._until = self._clock() + self._cooldown
        return self._outages >= OUTAGES
