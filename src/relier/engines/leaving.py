"""The time a worker has to leave: one budget, which everything after the grace shares.

told                   it claims no more; what runs may finish
the grace is over      what still runs is warned, stopped and handed back
LEAVE_S later          the process is gone, whatever the store does

Telling results, handing back, retiring, the last sweep and closing connections have no times of their own that could
add up: each gets what is left. What the store did not confirm by then comes back when the lease runs out.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

LEAVE_S = 10.0  # promised by docs/how-to/production.md
MARGIN_S = 2.0  # of these: for what is not cut short, such as a supervisor that returns the tasks of its last child


class LeaveBudget:
    """When the grace ends, and what is left after it (s). Nothing counts before `begin`."""

    def __init__(self, grace: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._grace = grace
        self._clock = clock
        self._grace_ends = math.inf

    def begin(self) -> None:
        """The worker was told to leave. Again: no difference."""
        self._grace_ends = min(self._grace_ends, self._clock() + self._grace)

    def end_grace(self) -> None:
        """Nothing runs any more, or nobody waits for it."""
        self._grace_ends = min(self._grace_ends, self._clock())

    def grace_left(self) -> float:
        return max(0.0, self._grace_ends - self._clock())

    def left(self, most: float = math.inf) -> float:
        """Return what is left until the worker must be gone, cut to `most`."""
        return max(0.0, min(most, self._grace_ends + LEAVE_S - MARGIN_S - self._clock()))

    async def spend(self, work: Awaitable[Any], most: float = math.inf) -> bool:
        """Await it while time is left; then it is cancelled. Return whether it came to its end."""
        try:
            async with asyncio.timeout(self.left(most)):
                await work
        except TimeoutError:
            return False
        return True
