"""Reads that take several bounded calls. `run` executes one call: that of a store, a client or a session."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from msgspec.structs import replace

from relier.ledger.lanes import Lane
from relier.ledger.ledger import Ledger
from relier.ledger.records import Task
from relier.ledger.stats import Stats


def read_stats(run: Callable[[Any], Any], ledger: Ledger) -> Stats:
    """Read all queues and nodes. More than a hundred of either are not read at one moment: see `Stats.pages`."""
    first = page = run(ledger.stats())
    queues = {queue.queue: queue for queue in first.queues}
    nodes = {node.node_id: node for node in first.nodes}
    pages = 1
    while page.cursor:
        page = run(ledger.stats(page.cursor))
        queues |= {queue.queue: queue for queue in page.queues}
        nodes |= {node.node_id: node for node in page.nodes}
        pages += 1
    in_order = sorted(nodes.values(), key=lambda node: (node.lease_left_ms, node.node_id))
    whole: Stats = replace(first, queues=tuple(queues.values()), nodes=tuple(in_order), cursor="", pages=pages)
    return whole


def read_lanes(run: Callable[[Any], Any], ledger: Ledger, queue: str = "") -> Iterator[Lane]:
    """Yield the lanes with tasks behind limits, of one queue or of all. A lane may appear twice."""
    cursor = "0"
    while cursor:
        page = run(ledger.lanes(queue, cursor))
        yield from page.lanes
        cursor = page.cursor


def waiting_places(run: Callable[[Any], Any], ledger: Ledger, queues: Collection[str]) -> list[tuple[str, str]]:
    """Return the indexes of all tasks of these queues that have not started, for `list`.

    Lanes come first: a task that leaves its lane meanwhile enters its queue, and then the schedule if a rate makes it
    wait, so a reader in this order misses none.
    """
    lanes = dict.fromkeys(lane.name for lane in read_lanes(run, ledger) if lane.queue in queues)
    return [*(("lane", lane) for lane in lanes), *(("ready", queue) for queue in queues), ("due", "")]


def read_steps(run: Callable[[Any], Any], ledger: Ledger, task: Task) -> dict[str, bytes]:
    """Read all steps of a task."""
    steps, left = dict(task.steps), task.steps_left
    while left:
        more, left = run(ledger.steps(task.record.id, left))
        steps |= more
    return steps
