"""What a relay shows to Prometheus: `rl outbox relay --metrics-port`. Needs `pip install relier[metrics]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from relier.errors import ConfigurationError
from relier.outbox.relay import Relay

BREAKER = {"closed": 0, "half-open": 1, "open": 2}


class RelayCollector:
    """Reads the relay's counters and the table's depth when it is asked."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        counts = self._relay.counts
        for name, value, text in (
            ("published", counts.published, "Rows that were sent."),
            ("failed", counts.failed, "Times a row failed alone, and is tried again."),
            ("dead", counts.dead, "Rows that were given up."),
            ("deferred", counts.deferred, "Times an admission limit put a row off."),
            ("outages", counts.outages, "Times a row met a target that was away."),
        ):
            yield CounterMetricFamily(f"relier_outbox_{name}", text, value=value)
        depth = self._relay.depth()
        for name, number, text in (
            ("database_state", self._relay.health.state, "0 answers, 1 away, 2 refuses this relay."),
            ("lag_seconds", counts.lag_ms / 1000, "The age of the last row that was sent."),
            *(
                ()
                if depth is None
                else (
                    ("depth", depth.waiting, "Rows that wait, counted up to 10,000."),
                    ("oldest_age_seconds", depth.oldest_age_ms / 1000, "The age of the oldest of them."),
                    ("dead_rows", depth.dead, "Dead rows in the table, counted up to 10,000."),
                )
            ),
        ):
            yield GaugeMetricFamily(f"relier_outbox_{name}", text, value=number)
        states = GaugeMetricFamily("relier_outbox_breaker_state", "0 closed, 1 half-open, 2 open.", labels=["kind"])
        for kind, breaker in self._relay.breakers.items():
            states.add_metric([kind], BREAKER[breaker.state])
        yield states


def serve_metrics(relay: Relay, port: int) -> None:
    """Answer on a port, from a thread."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise ConfigurationError(f"{error}; metrics need `pip install relier[metrics]`") from error
    registry = CollectorRegistry()
    registry.register(RelayCollector(relay))
    try:
        start_http_server(port, registry=registry)
    except OSError as error:
        raise ConfigurationError(
            f"metrics cannot be served on port {port}: {error.strerror or error}; free it, or name another"
        ) from error
