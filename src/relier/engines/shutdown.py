"""Budget the time a worker has to shut down. Everything after the grace period shares one budget.

asked to stop          the worker stops claiming; running tasks may finish
grace period over      tasks that still run are warned, stopped and handed back
LEAVE_S later          the process has ended, whatever the store does

Reporting results, handing tasks back, unregistering, the last sweep and closing connections have no timeouts of their
own, which could add up. Each gets the time that is left. Tasks whose end the store has not confirmed by then come back
when the lease runs out.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

LEAVE_S = 10.0  # promised by docs/how-to/production.md
MARGIN_S = 2.0  # the part of LEAVE_S for work without a limit, such as a supervisor reviving its last child's tasks


class ShutdownBudget:
    """Track when the grace period ends and how much time is left after it (s). The time starts with `begin`."""

    def __init__(self, grace: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._grace = grace
        self._clock = clock
        self._grace_ends = math.inf
        self._began = math.inf

    def begin(self) -> None:
        """Start the grace period. Calling this twice changes nothing."""
        self._began = min(self._began, self._clock())
        self._grace_ends = min(self._grace_ends, self._began + self._grace)

    def end_grace(self) -> None:
        """End the grace period now, because no task runs or nobody waits for the tasks."""
        self._grace_ends = min(self._grace_ends, self._clock())

    def grace_left(self) -> float:
        return max(0.0, self._grace_ends - self._clock())

    @property
    def took(self) -> float:
        """Return the seconds since the shutdown began."""
        return max(0.0, self._clock() - self._began)

    def left(self, most: float = math.inf) -> float:
        """Return the seconds left until the worker must have ended, at most `most`."""
        return max(0.0, min(most, self._grace_ends + LEAVE_S - MARGIN_S - self._clock()))

    async def spend(self, work: Awaitable[Any], most: float = math.inf) -> bool:
        """Await `work` while time is left, then cancel it. Return whether it finished."""
        try:
            async with asyncio.timeout(self.left(most)):
                await work
        except TimeoutError:
            return False
        return True
