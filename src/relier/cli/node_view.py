"""The nodes of a namespace: what each reported about itself, whether it is alive, and what it was ordered to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relier.ledger.nodes import Health, NodeStats, Orders, Role
from relier.ledger.stats import Stats


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Describe one node. `queues` is None if the node did not report any queues.

    `takes_orders` is False if the node runs an older release, which does not read orders. `supervisor` is the process
    id of the parent that replaces the node whenever the node ends, or 0 if there is no such parent.
    """

    node_id: str
    role: str
    health: Health
    host: str
    pid: str
    version: str
    queues: tuple[str, ...] | None
    concurrency: int | None
    owned: int
    lease_left_ms: int
    beat_ms: int
    polled_ms: int | None
    registered_ms: int
    about: dict[str, Any]
    report: dict[str, Any]
    rss_mb: int | None
    orders: Orders
    takes_orders: bool
    supervisor: int

    @property
    def draining(self) -> bool:
        """Whether the node takes nothing new, or was ordered to."""
        return self.orders.draining or self.orders.stopping or self.report.get("draining") is True

    @property
    def full(self) -> bool:
        return self.concurrency is not None and self.owned >= self.concurrency

    def listens_to(self, queue: str) -> bool:
        return self.queues is not None and queue in self.queues

    def as_dict(self) -> dict[str, Any]:
        return {
            "boot": self.node_id,
            "role": self.role,
            "health": self.health,
            "host": self.host or None,
            "pid": int(self.pid) if self.pid.isdigit() else None,
            "version": self.version or None,
            "queues": None if self.queues is None else list(self.queues),
            "concurrency": self.concurrency,
            "owned": self.owned,
            "lease_left_ms": self.lease_left_ms,
            "beat_ms": self.beat_ms,
            "polled_ms": self.polled_ms,
            "registered_ms": self.registered_ms,
            "draining": self.draining,
            "rss_mb": self.rss_mb,
            "orders": {
                "version": self.orders.version,
                "draining": self.orders.draining,
                "stopping": self.orders.stopping,
                "log_level": self.orders.log_level or None,
            },
            "about": self.about,
            "report": self.report,
        }


class WorkerView:
    """All workers of a namespace at one moment."""

    def __init__(self, stats: Stats, lease_seconds: float) -> None:
        self.all = tuple(node for node in node_statuses(stats, lease_seconds) if node.role == Role.WORKER)
        self.alive = tuple(worker for worker in self.all if worker.health == "alive")
        self.some_queues_unknown = any(worker.queues is None for worker in self.alive)
        self._by_id = {worker.node_id: worker for worker in self.all}
        self._by_queue: dict[str, list[NodeStatus]] = {}
        for worker in self.alive:
            for queue in dict.fromkeys(worker.queues or ()):
                self._by_queue.setdefault(queue, []).append(worker)

    def get(self, worker_id: str) -> NodeStatus | None:
        return self._by_id.get(worker_id)

    def listening(self, queue: str) -> tuple[NodeStatus, ...]:
        """Return the live workers that report this queue."""
        return tuple(self._by_queue.get(queue, ()))

    def unattended(self, queue: str) -> bool:
        """Return True if certainly no live worker serves the queue: all reported their queues, and none has it."""
        return not self.listening(queue) and not self.some_queues_unknown


def node_statuses(stats: Stats, lease_seconds: float) -> tuple[NodeStatus, ...]:
    """Return all nodes of a namespace, of every role."""
    return tuple(_status(node, stats.now_ms, lease_seconds) for node in stats.nodes)


def _status(node: NodeStats, now_ms: int, lease_seconds: float) -> NodeStatus:
    about, report = node.reported(), node.reported_now()
    concurrency, supervisor, rss = about.get("concurrency"), about.get("supervisor"), report.get("rss_mb")
    return NodeStatus(
        node_id=node.node_id,
        role=node.role,
        health=node.health(now_ms, lease_seconds),
        host=str(about.get("host", "")),
        pid=str(about.get("pid", "")),
        version=str(about.get("version", "")),
        queues=node.queues(),
        concurrency=concurrency if isinstance(concurrency, int) else None,
        owned=node.owned,
        lease_left_ms=node.lease_left_ms,
        beat_ms=node.beat_ms,
        polled_ms=int(node.polled) if node.polled.isdigit() else None,
        registered_ms=node.registered_ms,
        about=about,
        report=report,
        rss_mb=rss if isinstance(rss, int) and rss > 0 else None,
        orders=node.orders,
        takes_orders=node.stored_role != "",
        supervisor=supervisor if isinstance(supervisor, int) else 0,
    )
