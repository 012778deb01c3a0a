"""Rates of a namespace: how much its counters grew between two reads. Kept in the memory of one process."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

APART_MS = 5_000
KEPT = 60
RECENT_MS = 60_000
COUNTED = ("submitted", "done", "dead", "retried", "revived", "cancelled")


@dataclass(frozen=True, slots=True)
class CountSample:
    """The cumulative counters of a namespace at one moment of the store's clock."""

    at_ms: int
    counts: Mapping[str, int]


class CountHistory:
    """The last samples of the counters, at least APART_MS apart."""

    def __init__(self) -> None:
        self._samples: deque[CountSample] = deque(maxlen=KEPT)

    def add(self, at_ms: int, counts: Mapping[str, int]) -> None:
        """Keep a sample. A counter that went back means that the store was emptied: earlier samples are dropped."""
        last = self._samples[-1] if self._samples else None
        if last is not None and counts.get("submitted", 0) < last.counts.get("submitted", 0):
            self._samples.clear()
            last = None
        if last is None or at_ms - last.at_ms >= APART_MS:
            self._samples.append(CountSample(at_ms, {name: counts.get(name, 0) for name in COUNTED}))

    def rates(self, now_ms: int, counts: Mapping[str, int]) -> dict[str, float] | None:
        """Return tasks per second over the last minute, or None before there is something to compare with."""
        since = next((sample for sample in self._samples if now_ms - sample.at_ms <= RECENT_MS), None)
        if since is None or now_ms - since.at_ms < 1000:
            return None
        seconds = (now_ms - since.at_ms) / 1000
        return {name: max(0, counts.get(name, 0) - since.counts[name]) / seconds for name in COUNTED}

    def bars(self) -> list[dict[str, float]]:
        """Return tasks per second that ended well and badly, between each two samples, oldest first."""
        samples = list(self._samples)
        found = []
        for earlier, later in pairwise(samples):
            seconds = (later.at_ms - earlier.at_ms) / 1000
            gained = {name: max(0, later.counts[name] - earlier.counts[name]) / seconds for name in ("done", "dead")}
            found.append({"at_ms": later.at_ms, **gained})
        return found
