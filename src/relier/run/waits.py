"""How long the store kept an attempt waiting. That is no part of the time its hard timeout bounds.

While the store is away, a step, a checkpoint or a lock waits with what was done and is not recorded yet. To stop it
then would make the outage a failure of the task, and forget an effect.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

LONG_S = 0.25  # a store that answers sooner keeps nobody waiting


class Waits:
    """When one attempt waited for the store: in any of its branches and threads. `mirror`ed where another process runs
    it; monotonic time is one clock for all processes of a machine."""

    __slots__ = ("_clock", "_counted", "_lock", "_past", "_since")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[object, float] = {}  # of those under way
        self._past = 0.0  # seconds, of those that are over
        self._counted = 0.0  # until when

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Around one call that is repeated until the store answers."""
        key = object()
        self._since[key] = self._clock()
        try:
            yield
        finally:
            self._end(key, self._clock())

    def _end(self, key: object, now: float) -> None:
        with self._lock:
            since = self._since.pop(key)
            covered = min(self._since.values(), default=now) <= since  # by one that waits on
            if now - since >= LONG_S and not covered:
                self._past += now - max(since, self._counted)
                self._counted = now

    @property
    def state(self) -> tuple[float, float]:
        """What is over (s), and since when the longest one under way waits; 0: there is none."""
        with self._lock:
            since = min(self._since.values(), default=0.0)
            return self._past, max(since, self._counted) if since else 0.0

    def mirror(self, past: float, since: float) -> None:
        """Take over the state of the process that runs the attempt."""
        with self._lock:
            self._past = past
            self._since = {self: since} if since else {}

    @property
    def any(self) -> bool:
        return bool(self._since)

    def seconds(self) -> float:
        """How long in all, up to now."""
        past, since = self.state
        waited = self._clock() - since
        return past + waited if since and waited >= LONG_S else past
