"""Prometheus metrics of a relay: `rl outbox relay --metrics-port`. Requires the extra `metrics`.

Each is also served under its former name, `relier_outbox_…`, in this release only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, Literal

from relier.outbox.relay.batch import RelayCounts, reported_counts
from relier.outbox.relay.database_health import DatabaseState
from relier.outbox.relay.relay import Relay
from relier.outbox.table.statements import Depth

COUNTERS: tuple[tuple[str, str, Callable[[RelayCounts], int]], ...] = (
    ("published", "Rows that were sent.", lambda counts: counts.published),
    ("failed", "Failures of single rows that are retried.", lambda counts: counts.failed),
    ("dead", "Rows that were buried.", lambda counts: counts.dead),
    ("deferred", "Times an admission limit deferred a row.", lambda counts: counts.deferred),
    ("outages", "Times a row was not sent because its target was unreachable.", lambda counts: counts.outages),
)
DEPTHS: tuple[tuple[str, str, Callable[[Depth], float]], ...] = (
    ("depth", "Rows to be sent, counted up to 10,000.", lambda depth: depth.waiting),
    ("oldest_age_seconds", "The age of the oldest of them.", lambda depth: depth.oldest_age_ms / 1000),
    ("dead_rows", "Dead rows in the table, counted up to 10,000.", lambda depth: depth.dead),
)
PREFIX, FORMER_PREFIX = "rl_outbox_", "relier_outbox_"
BREAKER = {"closed": 0, "half-open": 1, "open": 2}


DATABASE = {DatabaseState.ANSWERS: "answers", DatabaseState.AWAY: "away", DatabaseState.REFUSES: "refuses"}


STATES = (
    ("database_state", "0: answers, 1: unreachable, 2: refuses this relay."),
    ("lag_seconds", "The age of the last row that was sent."),
    ("breaker_state", "0 closed, 1 half-open, 2 open. By the kind of rows."),
)


def outbox_series() -> Iterator[tuple[str, Literal["counter", "gauge"], str]]:
    """Yield name, kind and meaning of every metric of a relay, for the reference."""
    for name, text, _ in COUNTERS:
        yield name, "counter", text
    for name, text, _ in DEPTHS:
        yield name, "gauge", text
    for name, text in STATES:
        yield name, "gauge", text


def reported(relays: Sequence[Relay]) -> dict[str, Any]:
    """Return what the relays of one process report with each heartbeat, for `rl nodes` and the dashboard."""
    return {**reported_counts([relay.counts for relay in relays]), "outbox": [_table_report(one) for one in relays]}


def _table_report(relay: Relay) -> dict[str, Any]:
    """Return what a relay knows about its table. The first call makes it count the rows."""
    depth = relay.depth()
    return {
        "database": relay.labels.get("database", ""),
        "table": relay.options.table,
        "state": DATABASE[relay.health.state],
        "waiting": None if depth is None else depth.waiting,
        "exact": depth is not None and depth.exact,
        "oldest_age_ms": None if depth is None else depth.oldest_age_ms,
        "dead_rows": None if depth is None else depth.dead,
        "lag_ms": relay.counts.lag_ms,
        "breakers": {kind: breaker.state for kind, breaker in relay.breakers.items()},
    }


class RelayCollector:
    """Collects the relays' counters and the depth of their tables. The labels `database` and `table` distinguish
    the relays of a process."""

    def __init__(self, *relays: Relay) -> None:
        self._relays = relays
        self._labels = list(relays[0].labels)

    def collect(self) -> Iterator[Any]:
        """Yield the metrics, and each again under its former name."""
        for family in self._families():
            yield family
            former = copy(family)
            former.name = family.name.replace(PREFIX, FORMER_PREFIX, 1)
            former.documentation = f"Use {family.name}: this name goes with the next release."
            names = [sample.name.replace(PREFIX, FORMER_PREFIX, 1) for sample in family.samples]
            former.samples = [one._replace(name=name) for one, name in zip(family.samples, names, strict=True)]
            yield former

    def _families(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for relay in self._relays:
            relay.health.watch()
        for name, text, read in COUNTERS:
            counter = CounterMetricFamily(f"{PREFIX}{name}", text, labels=self._labels)
            for relay in self._relays:
                counter.add_metric(self._values(relay), read(relay.counts))
            yield counter
        yield self._gauge(
            "database_state", "0 answers, 1 unreachable, 2 refuses this relay.", lambda relay: relay.health.state
        )
        yield self._gauge("lag_seconds", "The age of the last row that was sent.", lambda one: one.counts.lag_ms / 1000)
        depths = {relay: depth for relay in self._relays if (depth := relay.depth()) is not None}
        for name, text, of in DEPTHS:
            gauge = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=self._labels)
            for relay, depth in depths.items():
                gauge.add_metric(self._values(relay), of(depth))
            if depths:
                yield gauge
        labels = [*self._labels, "kind"]
        states = GaugeMetricFamily(f"{PREFIX}breaker_state", "0 closed, 1 half-open, 2 open.", labels=labels)
        for relay in self._relays:
            for kind, breaker in relay.breakers.items():
                states.add_metric([*self._values(relay), kind], BREAKER[breaker.state])
        yield states

    def _gauge(self, name: str, text: str, read: Callable[[Relay], float]) -> Any:
        from prometheus_client.core import GaugeMetricFamily

        gauge = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=self._labels)
        for relay in self._relays:
            gauge.add_metric(self._values(relay), read(relay))
        return gauge

    def _values(self, relay: Relay) -> list[str]:
        return [relay.labels[label] for label in self._labels]
