"""Notice an event loop that is blocked: a timer on the loop records when the loop last ran."""

from __future__ import annotations

import asyncio
import time

TICK_S = 0.25


class LoopWatch:
    """Records when the current event loop last ran (`ran_at`, monotonic), until `end` is called."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tick()

    def _tick(self) -> None:
        self.ran_at = time.monotonic()
        self._timer = self._loop.call_later(TICK_S, self._tick)

    @property
    def lag(self) -> float:
        """Return how late the loop is now (s)."""
        return max(0.0, time.monotonic() - self.ran_at - TICK_S)

    def end(self) -> None:
        self._timer.cancel()
