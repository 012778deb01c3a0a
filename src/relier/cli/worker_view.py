"""The workers of a namespace: what each reported about itself, and whether it is alive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relier.ledger.stats import Health, Stats, WorkerStats


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
    about = stats.reported()
    concurrency = about.get("concurrency")
    return WorkerStatus(
        worker_id=stats.worker_id,
        health=stats.health(now_ms, lease_seconds),
        host=str(about.get("host", "")),
        pid=str(about.get("pid", "")),
        version=str(about.get("version", "")),
        queues=stats.queues(),
        concurrency=concurrency if isinstance(concurrency, int) else None,
        owned=stats.owned,
        lease_left_ms=stats.lease_left_ms,
        beat_ms=stats.beat_ms,
        polled_ms=int(stats.polled) if stats.polled.isdigit() else None,
        registered_ms=stats.registered_ms,
        about=about,
    )
