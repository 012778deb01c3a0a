"""How far the readers of events in this process are behind, and what they missed. Each reader registers itself."""

from __future__ import annotations

import time
import weakref
from collections import Counter
from typing import Protocol


class EventReader(Protocol):
    """Describe one reader of events in this process.

    `unread_us` is the time at which the oldest unread event was written (µs), or 0 if the reader has read everything.
    """

    unread_us: int


readers: weakref.WeakSet[EventReader] = weakref.WeakSet()
missed: Counter[tuple[str, str]] = Counter()  # gaps, by topic and reason


def event_lag() -> float:
    """Return how far the slowest reader is behind (s), by this host's clock: a scrape does not ask the store."""
    at_us = min((reader.unread_us for reader in list(readers) if reader.unread_us), default=0)
    return max(0.0, time.time() - at_us / 1e6) if at_us else 0.0
