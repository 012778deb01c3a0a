"""Measure how long an attempt waited for the store. Its hard timeout does not include that time.

During an outage, a step, a checkpoint or a lock waits until the store has recorded an effect that already happened. If
the attempt were stopped meanwhile, the outage would become a failure of the task, and the record of the effect would be
lost.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

LONG_S = 0.25  # shorter waits do not count


class Waits:
    """Record when one attempt waited for the store, in any of its branches and threads.

    If another process runs the attempt, its times are copied with `mirror`: all processes of a machine share one
    monotonic clock.
    """

    __slots__ = ("_clock", "_counted", "_lock", "_past", "_since")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[object, float] = {}  # when each current wait began
        self._past = 0.0  # the seconds of all waits that are over
        self._counted = 0.0  # the time up to which `_past` counts

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Record a wait around one call that is repeated until the store answers."""
        key = object()
        self._since[key] = self._clock()
        try:
            yield
        finally:
            self._end(key, self._clock())

    def _end(self, key: object, now: float) -> None:
        with self._lock:
            since = self._since.pop(key)
            covered = min(self._since.values(), default=now) <= since  # by a wait that began earlier and goes on
            if now - since >= LONG_S and not covered:
                self._past += now - max(since, self._counted)
                self._counted = now

    @property
    def state(self) -> tuple[float, float]:
        """Return the seconds of past waits, and when the longest current wait began (0 if there is none)."""
        with self._lock:
            since = min(self._since.values(), default=0.0)
            return self._past, max(since, self._counted) if since else 0.0

    def mirror(self, past: float, since: float) -> None:
        """Copy the state reported by the process that runs the attempt."""
        with self._lock:
            self._past = past
            self._since = {self: since} if since else {}

    @property
    def any(self) -> bool:
        return bool(self._since)

    def seconds(self) -> float:
        """Return the seconds waited in total, up to now."""
        past, since = self.state
        waited = self._clock() - since
        return past + waited if since and waited >= LONG_S else past
