"""Watch one worker: its health, and its metrics if there is a port."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from relier.engines.monitoring.task_metrics import TaskMetrics
from relier.engines.monitoring.worker_health import Reasons, WorkerHealth
from relier.engines.monitoring.worker_metrics import count_worker
from relier.engines.worker import Worker, WorkerOptions
from relier.ledger.nodes import Role
from relier.monitoring.loop_watch import LoopWatch
from relier.monitoring.meter import Meter
from relier.monitoring.monitor import MonitoringAddress, start_monitor
from relier.monitoring.node_metrics import count_node
from relier.submit.client import Client


class WorkerWatch:
    """Watches one worker. `descriptor`: the socket on which a supervisor asks this process, which then serves no port.

    Without a port and a descriptor, nothing is counted.
    """

    def __init__(self, client: Client, descriptor: int | None = None) -> None:
        settings = client.settings
        port = settings.metrics_port if descriptor is None else 0
        self._address = MonitoringAddress(settings.metrics_host, port, descriptor)
        self._client = client
        self._meter = Meter() if port or descriptor is not None else None

    def observed(self, options: WorkerOptions) -> WorkerOptions:
        """Return the options of a worker whose events are counted, if anybody may ask for them."""
        return options if self._meter is None else replace(options, observe=TaskMetrics(self._meter))

    @contextlib.contextmanager
    def serve(self, worker: Worker, slots: int, stuck: Reasons = tuple) -> Iterator[None]:
        """Serve probes and metrics while the block runs. Enter this on the worker's event loop.

        `stuck`: reasons that only the worker's engine knows.
        """
        loop, lease = LoopWatch(), self._client.settings.heartbeat_ttl
        health = WorkerHealth(worker, loop, lease, stuck)
        if self._meter is not None:
            count_node(self._meter, health, Role.WORKER.value, loop, self._client.store)
            count_worker(self._meter, worker, slots, lease)
        monitor = start_monitor(self._address, health, self._meter)
        try:
            yield
        finally:
            monitor.close()
            loop.end()
