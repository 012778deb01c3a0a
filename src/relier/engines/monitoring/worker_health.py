"""The health of a worker.

It is stuck if its event loop or its heartbeat thread no longer runs. It is not ready while it claims nothing: it is
starting, draining or suspended, or its lease is in doubt because the store does not answer. A worker whose slots are
all busy is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from relier.engines.worker import Worker
from relier.ledger.nodes import Role
from relier.monitoring.health import STUCK_S, Health, stuck_reasons
from relier.monitoring.loop_watch import LoopWatch

Reasons = Callable[[], tuple[str, ...]]


class WorkerHealth:
    """Reports the health of one worker. `stuck`: reasons that only its engine knows."""

    def __init__(self, worker: Worker, loop: LoopWatch, lease: float, stuck: Reasons = tuple) -> None:
        self._worker = worker
        self._loop = loop
        self._lease = lease
        self._stuck = stuck

    def __call__(self) -> Health:
        return Health(Role.WORKER.value, self._worker.ready, self._stuck_now(), tuple(self._unready()))

    def _stuck_now(self) -> tuple[str, ...]:
        worker, beats = self._worker, tuple[str, ...]()
        if worker.ready and not worker.draining:  # the thread runs only in between
            beats = stuck_reasons("the heartbeat thread", worker.liveness.glanced, STUCK_S + self._lease)
        return (*stuck_reasons("the event loop", self._loop.ran_at), *beats, *self._stuck())

    def _unready(self) -> Iterator[str]:
        worker = self._worker
        if worker.draining:
            yield "restarting" if worker.recycling else "draining: it was told to stop"
        if worker.suspended:
            yield "claims are suspended by an operator"
        if worker.ready and worker.liveness.suspect:
            yield "the store does not answer"
