"""The workers of a namespace: what each reported about itself, and whether it is alive."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from relier.ledger.stats import Stats, WorkerStats

Health = Literal["alive", "silent", "lost"]


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker. `queues` is None if the worker did not report its queues."""

    worker_id: str
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

    @property
    def full(self) -> bool:
        return self.concurrency is not None and self.owned >= self.concurrency

    def listens_to(self, queue: str) -> bool:
        return self.queues is not None and queue in self.queues

    def as_dict(self) -> dict[str, Any]:
        return {
            "boot": self.worker_id,
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
            "about": self.about,
        }


class WorkerView:
    """All workers of a namespace at one moment."""

    def __init__(self, stats: Stats, lease_seconds: float) -> None:
        self.all = tuple(_worker(worker, stats.now_ms, lease_seconds) for worker in stats.workers)
        self.alive = tuple(worker for worker in self.all if worker.health == "alive")
        self.some_queues_unknown = any(worker.queues is None for worker in self.alive)
        self._by_id = {worker.worker_id: worker for worker in self.all}

    def get(self, worker_id: str) -> WorkerStatus | None:
        return self._by_id.get(worker_id)

    def listening(self, queue: str) -> tuple[WorkerStatus, ...]:
        """Return the live workers that report this queue."""
        return tuple(worker for worker in self.alive if worker.listens_to(queue))

    def unattended(self, queue: str) -> bool:
        """Return True if certainly no live worker serves the queue: all reported their queues, and none has it."""
        return not self.listening(queue) and not self.some_queues_unknown


def _worker(stats: WorkerStats, now_ms: int, lease_seconds: float) -> WorkerStatus:
    about = _about(stats.about)
    queues = about.get("queues")
    concurrency = about.get("concurrency")
    return WorkerStatus(
        worker_id=stats.worker_id,
        health=_health(stats, now_ms, lease_seconds),
        host=str(about.get("host", "")),
        pid=str(about.get("pid", "")),
        version=str(about.get("version", "")),
        queues=tuple(map(str, queues)) if isinstance(queues, list) else None,
        concurrency=concurrency if isinstance(concurrency, int) else None,
        owned=stats.owned,
        lease_left_ms=stats.lease_left_ms,
        beat_ms=stats.beat_ms,
        polled_ms=int(stats.polled) if stats.polled.isdigit() else None,
        registered_ms=stats.registered_ms,
        about=about,
    )


def _about(text: str) -> dict[str, Any]:
    try:
        about = json.loads(text)
    except ValueError:
        return {}
    return about if isinstance(about, dict) else {}


def _health(stats: WorkerStats, now_ms: int, lease_seconds: float) -> Health:
    """Return whether a worker is alive, silent or lost.

    Leases are measured on the ledger clock, which stands still while no worker advances it. If all workers died
    together, their leases never seem to run out, and only the time since the last heartbeat shows that they are dead.
    So a worker counts as silent once that time exceeds four times the lease it seems to have left. The settings of this
    process alone do not decide, because a worker may have a longer lease.
    """
    if stats.lease_left_ms <= 0:
        return "lost"
    quiet_ms = now_ms - stats.beat_ms
    return "silent" if quiet_ms > max(2000 * lease_seconds, 4 * stats.lease_left_ms) else "alive"
