"""The answer to `stats`: counters, queues and workers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from relier.states import State


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

    def by_state(self) -> dict[State, int]:
        return {
            State.SCHEDULED: self.scheduled,
            State.QUEUED: sum(queue.ready for queue in self.queues),
            State.RUNNING: sum(worker.owned for worker in self.workers),
            **{State(state): n for state, n in self.ended.items()},
        }
