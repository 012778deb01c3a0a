"""The health of a helper that runs on an event loop: a scheduler, or a resurrector.

It is stuck if its event loop no longer runs. It is not ready while it is draining or stopping, or while the ledger does
not answer its heartbeats. With shards, one that answers is enough.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from relier.ledger.nodes import Role
from relier.monitoring.health import Health, stuck_reasons
from relier.monitoring.loop_watch import LoopWatch
from relier.monitoring.meter import Meter
from relier.monitoring.monitor import MonitoringAddress, start_monitor
from relier.monitoring.node_metrics import count_node
from relier.nodes.membership import NodeMembership
from relier.settings import Settings
from relier.store import AsyncStore


class HelperHealth:
    """Reports the health of one helper. Create it on the helper's event loop. `memberships`: one for each shard."""

    def __init__(
        self,
        role: Role,
        memberships: Sequence[NodeMembership],
        stopping: Callable[[], bool],
        meter: Meter | None = None,
    ) -> None:
        self._role = role
        self._memberships = memberships
        self._stopping = stopping
        self._meter = meter
        self._loop = LoopWatch()
        self._started = False

    def __call__(self) -> Health:
        self._started = self._started or any(each.registered for each in self._memberships)
        stuck = stuck_reasons("the event loop", self._loop.ran_at)
        return Health(self._role.value, self._started, stuck, tuple(self._unready()))

    def _unready(self) -> Iterator[str]:
        if self._stopping():
            yield "stopping: it was told to stop"
        if all(each.orders.draining for each in self._memberships):
            yield "drained by an operator"
        if all(each.away for each in self._memberships):
            yield "the store does not answer"

    @contextlib.contextmanager
    def served(self, settings: Settings, store: AsyncStore) -> Iterator[None]:
        """Serve the health, and the metrics if there is a meter, while the block runs."""
        if self._meter is not None:
            count_node(self._meter, self, self._role.value, self._loop, store)
        address = MonitoringAddress(settings.metrics_host, settings.metrics_port)
        monitor = start_monitor(address, self, self._meter)
        try:
            yield
        finally:
            monitor.close()
            self._loop.end()
