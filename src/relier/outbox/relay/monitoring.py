"""The health of a process that runs relays, and the port on which it is served, with the relays' metrics.

A relay is stuck if its thread no longer runs, although its database answers. The process is ready while at least one of
its relays sends rows: its database answers, and nobody has drained or stopped it.
"""

from __future__ import annotations

from collections.abc import Iterator

from relier.ledger.nodes import Role
from relier.monitoring.health import Health, stuck_reasons
from relier.monitoring.meter import Meter
from relier.monitoring.monitor import Monitor, MonitoringAddress, start_monitor
from relier.monitoring.node_metrics import count_process
from relier.outbox.relay.database_health import DatabaseState
from relier.outbox.relay.fleet import Fleet
from relier.outbox.relay.metrics import RelayCollector
from relier.outbox.relay.relay import Relay
from relier.settings import Settings

STUCK_S = 60.0  # longer than any statement or publish takes while its server answers
DATABASE = {DatabaseState.AWAY: "its database is unreachable", DatabaseState.REFUSES: "its database refuses it"}


class RelayHealth:
    """Reports the health of the relays of one process."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def __call__(self) -> Health:
        relays = self._fleet.relays
        for relay in relays:
            relay.health.watch()
        stuck = tuple(reason for relay in relays for reason in self._stuck(relay))
        idle = [tuple(self._unready(relay)) for relay in relays]
        unready = () if not all(idle) else tuple(dict.fromkeys(reason for reasons in idle for reason in reasons))
        return Health(Role.RELAY.value, self._fleet.started, stuck, unready)

    def _stuck(self, relay: Relay) -> tuple[str, ...]:
        if not self._fleet.started or relay.is_stopping or relay.health.state is not DatabaseState.ANSWERS:
            return ()
        return stuck_reasons(f"the relay of table {relay.options.table}", relay.passed_at, STUCK_S)

    def _unready(self, relay: Relay) -> Iterator[str]:
        table = relay.options.table
        if relay.is_stopping:
            yield "stopping: it was told to stop"
        if self._fleet.is_draining:
            yield "drained by an operator"
        if relay.health.state in DATABASE:
            yield f"the relay of table {table} sends nothing: {DATABASE[relay.health.state]}"
        if relay.breakers and all(breaker.state == "open" for breaker in relay.breakers.values()):
            yield f"the relay of table {table} sends nothing: no target answers"


def watch_relays(fleet: Fleet, settings: Settings, port: int | None = None, host: str | None = None) -> Monitor:
    """Serve the health and the metrics of relays, on the port of the command line or of the settings.

    Raise ConfigurationError if the port is taken.
    """
    address = MonitoringAddress(host or settings.metrics_host, settings.metrics_port if port is None else port)
    health, meter = RelayHealth(fleet), Meter()
    meter.collectors.append(RelayCollector(*fleet.relays))
    count_process(meter, health, Role.RELAY.value)
    return start_monitor(address, health, meter)
