"""Prometheus metrics of a relay: `rl outbox relay --metrics-port`. Requires the extra `metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from relier.errors import ConfigurationError
from relier.outbox.relay.batch import RelayCounts
from relier.outbox.relay.relay import Relay
from relier.outbox.table.statements import Depth
from relier.version import how_to_install

COUNTERS: tuple[tuple[str, str, Callable[[RelayCounts], int]], ...] = (
    ("published", "Rows that were sent.", lambda counts: counts.published),
    ("failed", "Failures of single rows that are retried.", lambda counts: counts.failed),
    ("dead", "Rows that were buried.", lambda counts: counts.dead),
    ("deferred", "Times an admission limit deferred a row.", lambda counts: counts.deferred),
    ("outages", "Times a row was not sent because its target was away.", lambda counts: counts.outages),
)
DEPTHS: tuple[tuple[str, str, Callable[[Depth], float]], ...] = (
    ("depth", "Rows to be sent, counted up to 10,000.", lambda depth: depth.waiting),
    ("oldest_age_seconds", "The age of the oldest of them.", lambda depth: depth.oldest_age_ms / 1000),
    ("dead_rows", "Dead rows in the table, counted up to 10,000.", lambda depth: depth.dead),
)
LAST_PORT = 65_535
BREAKER = {"closed": 0, "half-open": 1, "open": 2}


class RelayCollector:
    """Collects the relays' counters and the depth of their tables. The labels `database` and `table` tell the relays of
    a process apart."""

    def __init__(self, *relays: Relay) -> None:
        self._relays = relays
        self._labels = list(relays[0].labels)

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, text, read in COUNTERS:
            counter = CounterMetricFamily(f"relier_outbox_{name}", text, labels=self._labels)
            for relay in self._relays:
                counter.add_metric(self._values(relay), read(relay.counts))
            yield counter
        yield self._gauge(
            "database_state", "0 answers, 1 away, 2 refuses this relay.", lambda relay: relay.health.state
        )
        yield self._gauge("lag_seconds", "The age of the last row that was sent.", lambda one: one.counts.lag_ms / 1000)
        depths = {relay: depth for relay in self._relays if (depth := relay.depth()) is not None}
        for name, text, of in DEPTHS:
            gauge = GaugeMetricFamily(f"relier_outbox_{name}", text, labels=self._labels)
            for relay, depth in depths.items():
                gauge.add_metric(self._values(relay), of(depth))
            if depths:
                yield gauge
        labels = [*self._labels, "kind"]
        states = GaugeMetricFamily("relier_outbox_breaker_state", "0 closed, 1 half-open, 2 open.", labels=labels)
        for relay in self._relays:
            for kind, breaker in relay.breakers.items():
                states.add_metric([*self._values(relay), kind], BREAKER[breaker.state])
        yield states

    def _gauge(self, name: str, text: str, read: Callable[[Relay], float]) -> Any:
        from prometheus_client.core import GaugeMetricFamily

        gauge = GaugeMetricFamily(f"relier_outbox_{name}", text, labels=self._labels)
        for relay in self._relays:
            gauge.add_metric(self._values(relay), read(relay))
        return gauge

    def _values(self, relay: Relay) -> list[str]:
        return [relay.labels[label] for label in self._labels]


def serve_metrics(port: int, *relays: Relay) -> None:
    """Serve metrics on a port, in a thread."""
    if not 1 <= port <= LAST_PORT:
        raise ConfigurationError(f"metrics_port must be from 1 to {LAST_PORT}, not {port}")
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise ConfigurationError(f"{error}; for metrics, {how_to_install('metrics')}") from error
    registry = CollectorRegistry()
    registry.register(RelayCollector(*relays))
    try:
        start_http_server(port, registry=registry)
    except OSError as error:
        raise ConfigurationError(
            f"metrics cannot be served on port {port}: {error.strerror or error}; free the port, or choose another"
        ) from error
