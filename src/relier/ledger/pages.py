"""Reads that take several bounded calls. `run` executes one call: that of a store, a client or a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from relier.ledger.ledger import Ledger
from relier.ledger.records import Task
from relier.ledger.stats import Stats


def read_stats(run: Callable[[Any], Any], ledger: Ledger) -> Stats:
    """Read all queues and workers. More than a hundred of either are not read at one moment: see `Stats.pages`."""
    first = page = run(ledger.stats())
    queues = {queue.queue: queue for queue in first.queues}
    workers = {worker.worker_id: worker for worker in first.workers}
    pages = 1
    while page.cursor:
        page = run(ledger.stats(page.cursor))
        queues |= {queue.queue: queue for queue in page.queues}
        workers |= {worker.worker_id: worker for worker in page.workers}
        pages += 1
    in_order = sorted(workers.values(), key=lambda worker: (worker.lease_left_ms, worker.worker_id))
    whole: Stats = replace(first, queues=tuple(queues.values()), workers=tuple(in_order), cursor="", pages=pages)
    return whole


def read_steps(run: Callable[[Any], Any], ledger: Ledger, task: Task) -> dict[str, bytes]:
    """Read all steps of a task."""
    steps, left = dict(task.steps), task.steps_left
    while left:
        more, left = run(ledger.steps(task.record.id, left))
        steps |= more
    return steps
