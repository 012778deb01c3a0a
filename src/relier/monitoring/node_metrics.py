"""The metrics of every node: its event loop, its calls to the store, its readiness, version and memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol

from relier.monitoring import series
from relier.monitoring.health import HealthSource
from relier.monitoring.loop_watch import LoopWatch
from relier.monitoring.meter import Meter
from relier.version import __version__


class WatchedStore(Protocol):
    """A store that reports its calls: how long each took (s), and the kinds of their errors."""

    @property
    def breaker_open(self) -> bool: ...

    def watch_calls(self, report: Callable[[float, Sequence[str]], None]) -> None: ...


def count_node(meter: Meter, health: HealthSource, role: str, loop: LoopWatch, store: WatchedStore) -> None:
    """Add the metrics of a node that runs on an event loop."""
    count_process(meter, health, role)
    seconds, errors = meter.histogram(series.STORE_TIME), meter.counts(series.STORE_ERRORS)

    def report(took: float, kinds: Sequence[str]) -> None:
        seconds.observe(took)
        for kind in kinds:
            errors.add(kind)

    store.watch_calls(report)
    meter.read(series.BREAKER, lambda: float(store.breaker_open))
    meter.read(series.LOOP_LAG, lambda: loop.lag)


def count_process(meter: Meter, health: HealthSource, role: str) -> None:
    """Add the metrics that every process has."""
    meter.read(series.READY, lambda: {(role,): float(health().ready)})
    meter.read(series.BUILD, lambda: {(role, __version__): 1.0})
    meter.read(series.MEMORY, resident_bytes)


def resident_bytes() -> float:
    """Return this process's resident memory (Linux), or 0 on other systems."""
    try:
        with open("/proc/self/statm") as file:
            return float(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except OSError:
        return 0.0
