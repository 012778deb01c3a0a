"""Numbers per task and queue: counts of each kind of end, and percentiles of wait and run times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from relier.ledger.outcomes.records import Series
from relier.slo.buckets import percentile_ms

PERCENTS = (50, 95, 99)


@dataclass(slots=True)
class TaskNumbers:
    """One task in one queue. Both names are empty for tasks that were counted together: there were too many."""

    queue: str
    name: str
    ended: Counter[str] = field(default_factory=Counter)  # done, dead, expired, cancelled
    waits: Counter[int] = field(default_factory=Counter)  # by bucket
    runs: Counter[int] = field(default_factory=Counter)  # of attempts that ended a task

    def add(self, series: Series, n: int) -> None:
        if series.what == "wait":
            self.waits[series.bucket or 0] += n
            return
        self.ended[series.what] += n
        if series.bucket is not None:
            self.runs[series.bucket] += n

    @property
    def success(self) -> float | None:
        """The share of tasks that ended as done, not counting cancelled ones."""
        counted = self.ended["done"] + self.ended["dead"] + self.ended["expired"]
        return self.ended["done"] / counted if counted else None

    def wait_ms(self, percent: float) -> int | None:
        """Return an upper bound of a percentile of the waits, one per claim."""
        return percentile_ms(self.waits, percent)

    def run_ms(self, percent: float) -> int | None:
        """Return an upper bound of a percentile of the last attempts' run times."""
        return percentile_ms(self.runs, percent)


def report_tasks(counts: Mapping[Series, int], queue: str = "", name: str = "") -> list[TaskNumbers]:
    """Return the numbers of each task and queue, the busiest first. `queue` and `name` choose some of them."""
    found: dict[tuple[str, str], TaskNumbers] = {}
    for series, n in counts.items():
        if queue in ("", series.queue) and name in ("", series.name):
            place = (series.queue, series.name)
            found.setdefault(place, TaskNumbers(*place)).add(series, n)
    return sorted(found.values(), key=lambda one: (-one.ended.total(), -one.waits.total(), one.name, one.queue))
