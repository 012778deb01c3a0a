"""The answer to `stats`: counters, queues and nodes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from relier.ledger.nodes import NodeStats, Role
from relier.states import State


class QueueStats(msgspec.Struct, frozen=True):
    queue: str
    ready: int
    revived: int
    oldest_at_ms: int | None
    paused: bool
    pause_version: int
    held_back: int = 0  # by limits at run time

    @property
    def waiting(self) -> int:
        """All queued tasks: those that a worker may claim, and those that limits hold back."""
        return self.ready + self.held_back


class Stats(msgspec.Struct, frozen=True):
    """Cumulative `counts`, and the present queues and nodes. `workers` are the nodes that run tasks.

    `cursor`: where the next page begins, empty at the end. `pages`: if more than 1, queues and nodes were not all read
    at one moment.
    """

    now_ms: int
    counts: Mapping[str, int]
    queues: tuple[QueueStats, ...]
    scheduled: int
    nodes: tuple[NodeStats, ...]
    ended: Mapping[str, int]
    cursor: str = ""
    pages: int = 1

    @property
    def workers(self) -> tuple[NodeStats, ...]:
        return tuple(node for node in self.nodes if node.role == Role.WORKER)

    def alive(self, lease_seconds: float) -> list[NodeStats]:
        """Return the workers that are alive."""
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
            State.QUEUED: sum(queue.waiting for queue in self.queues),
            State.RUNNING: sum(worker.owned for worker in self.workers),
            **{State(state): n for state, n in self.ended.items()},
        }
