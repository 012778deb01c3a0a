"""The answer to `stats`: counters, queues and workers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from relier.states import State

Health = Literal["alive", "silent", "lost"]


class QueueStats(msgspec.Struct, frozen=True):
    queue: str
    ready: int
    revived: int
    oldest_at_ms: int | None
    paused: bool
    pause_version: int


class WorkerStats(msgspec.Struct, frozen=True):
    worker_id: str
    lease_left_ms: int
    owned: int
    about: str
    beat_ms: int
    polled: str
    registered_ms: int

    def reported(self) -> dict[str, Any]:
        """Return what the worker reported about itself; empty if that cannot be read."""
        try:
            about = json.loads(self.about)
        except ValueError:
            return {}
        return about if isinstance(about, dict) else {}

    def queues(self) -> tuple[str, ...] | None:
        """Return the queues that the worker serves, or None if it did not report them."""
        queues = self.reported().get("queues")
        return tuple(map(str, queues)) if isinstance(queues, list) else None

    def health(self, now_ms: int, lease_seconds: float) -> Health:
        """Return whether the worker is alive, silent or lost.

        Leases are measured on the ledger clock, which stands still while no worker advances it. If all workers died
        together, their leases never seem to run out, and only the time since the last heartbeat shows that they are
        dead. So a worker counts as silent once that time exceeds four times the lease it seems to have left. The
        settings of this process alone do not decide, because a worker may have a longer lease.
        """
        if self.lease_left_ms <= 0:
            return "lost"
        quiet_ms = now_ms - self.beat_ms
        return "silent" if quiet_ms > max(2000 * lease_seconds, 4 * self.lease_left_ms) else "alive"


class Stats(msgspec.Struct, frozen=True):
    """Cumulative `counts`, and the present queues and workers.

    `cursor`: where the next page begins, empty at the end. `pages`: if more than 1, queues and workers were not all
    read at one moment.
    """

    now_ms: int
    counts: Mapping[str, int]
    queues: tuple[QueueStats, ...]
    scheduled: int
    workers: tuple[WorkerStats, ...]
    ended: Mapping[str, int]
    cursor: str = ""
    pages: int = 1

    def alive(self, lease_seconds: float) -> list[WorkerStats]:
        return [worker for worker in self.workers if worker.health(self.now_ms, lease_seconds) == "alive"]

    def unattended(self, queue: str, lease_seconds: float) -> bool:
        """Return True if certainly no live worker serves the queue: all reported their queues, and none has it."""
        served = [worker.queues() for worker in self.alive(lease_seconds)]
        return not self.cursor and not any(queues is None or queue in queues for queues in served)

    def is_paused(self, queue: str) -> bool:
        return any(each.paused for each in self.queues if each.queue == queue)

    def by_state(self) -> dict[State, int]:
        return {
            State.SCHEDULED: self.scheduled,
            State.QUEUED: sum(queue.ready for queue in self.queues),
            State.RUNNING: sum(worker.owned for worker in self.workers),
            **{State(state): n for state, n in self.ended.items()},
        }
