"""The numbers of one process, and their text for Prometheus.

Code counts into plain dictionaries, without locks: each is written by one thread. A scrape copies them and renders the
copy with prometheus-client. The Counter and Histogram of prometheus-client take a lock per number, and share files with
the application when PROMETHEUS_MULTIPROC_DIR is set.
"""

from __future__ import annotations

import importlib.util
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from relier.errors import ConfigurationError
from relier.monitoring.series import MetricSeries
from relier.version import how_to_install

BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
MOST_LABELS = 1000  # combinations of labels per metric; the rest is counted under OTHER
OTHER = "other"

Labels = tuple[str, ...]
Read = Callable[[], "float | Mapping[Labels, float]"]


def is_available() -> bool:
    return importlib.util.find_spec("prometheus_client") is not None


class CountNumbers:
    """A counter by labels."""

    def __init__(self) -> None:
        self.rows: dict[Labels, float] = {}

    def add(self, *labels: str, n: float = 1) -> None:
        rows = self.rows
        try:
            rows[labels] += n
        except KeyError:
            if len(rows) >= MOST_LABELS:
                labels = (OTHER,) * len(labels)
            rows[labels] = rows.get(labels, 0) + n


class HistogramNumbers:
    """A histogram by labels: a count for each bucket and for those above, then the sum."""

    def __init__(self) -> None:
        self.rows: dict[Labels, list[float]] = {}

    def observe(self, value: float, *labels: str) -> None:
        try:
            row = self.rows[labels]
        except KeyError:
            if len(self.rows) >= MOST_LABELS:
                labels = (OTHER,) * len(labels)
            row = self.rows.setdefault(labels, [0.0] * (len(BOUNDS) + 2))
        row[bisect_left(BOUNDS, value)] += 1
        row[-1] += value


class Meter:
    """All metrics of one process."""

    def __init__(self) -> None:
        self._counted: list[tuple[MetricSeries, CountNumbers | HistogramNumbers]] = []
        self._read: list[tuple[MetricSeries, Read]] = []
        self.collectors: list[Any] = []  # of prometheus-client, rendered as they are

    def counts(self, series: MetricSeries) -> CountNumbers:
        numbers = CountNumbers()
        if not series.labels:
            numbers.add(n=0)  # a counter without labels begins at 0; rates need the first value
        self._counted.append((series, numbers))
        return numbers

    def histogram(self, series: MetricSeries) -> HistogramNumbers:
        numbers = HistogramNumbers()
        self._counted.append((series, numbers))
        return numbers

    def read(self, series: MetricSeries, value: Read) -> None:
        """Read a gauge or a counter at each scrape: a number, or numbers by labels."""
        self._read.append((series, value))

    def collect(self) -> Iterator[Any]:
        """Yield metric families, as prometheus-client expects of a collector."""
        for series, numbers in self._counted:
            if isinstance(numbers, HistogramNumbers):
                yield _histogram(series, numbers)
            else:
                yield family(series, dict(numbers.rows))
        for series, value in self._read:
            found = value()
            yield family(series, found if isinstance(found, Mapping) else {(): found})
        for collector in self.collectors:
            yield from collector.collect()

    def text(self) -> bytes:
        """Return the page of metrics. Raise ConfigurationError without prometheus-client."""
        try:
            from prometheus_client import generate_latest
        except ImportError as error:
            raise ConfigurationError(f"{error}; for metrics, {how_to_install('metrics')}") from error
        return generate_latest(self)  # it only calls `collect`


def family(series: MetricSeries, rows: Mapping[Labels, float]) -> Any:
    """Return a metric as prometheus-client's collectors yield it."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind: Any = CounterMetricFamily if series.kind == "counter" else GaugeMetricFamily
    made = kind(series.name, series.text, labels=series.labels)
    for labels, value in rows.items():
        made.add_metric(labels, value)
    return made


def _histogram(series: MetricSeries, numbers: HistogramNumbers) -> Any:
    from prometheus_client.core import HistogramMetricFamily

    made = HistogramMetricFamily(series.name, series.text, labels=series.labels)
    for labels, row in list(numbers.rows.items()):
        *counts, total = list(row)
        below, buckets = 0.0, []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
            below += count
            buckets.append((bound, below))
        made.add_metric(labels, buckets, total)
    return made
