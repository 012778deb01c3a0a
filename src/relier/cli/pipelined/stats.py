"""Read the queues, nodes and counters of a namespace in two or three round trips."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from relier.cli.pipelined.steps import Reading, cut, raw, script
from relier.ledger import keys, replies
from relier.ledger.ledger import Ledger
from relier.ledger.stats import QueueStats, Stats

MOST_QUEUES = 10_000  # about so many are looked at; a command that reads them all at once takes 1 to 2 ms
MOST_NODES = 5_000
QUEUES_AT_ONCE = 250
NODES_AT_ONCE = 100
EXACT_AT_ONCE = 100
READ_DEEP = 200  # records that one script reads for the oldest arrivals
DEEPEST = 32

Choice = Callable[[Sequence[QueueStats]], Iterable[str]]


def stats_reading(
    ledger: Ledger, *, exact: Choice | None = None, queues: Sequence[str] | None = None
) -> Reading[Stats]:
    """Read counters, queues and nodes. `queues`: only these. The counts of tasks are then not complete.

    The oldest arrival of a queue is derived from the order of its next task, without regard to priorities. `exact`
    chooses queues for which some records are read instead, in one more round trip.

    A namespace may have more queues or nodes than are looked at here. Then `cursor` of the answer is not empty.
    """
    spelled = keys.spell
    head, page, node_ids = yield [
        ledger.stats(" "),  # no queues, no nodes
        raw("SSCAN", spelled(ledger.prefix, "queues"), 0, "COUNT", MOST_QUEUES if queues is None else 1),
        raw("ZRANGE", spelled(ledger.prefix, "boots"), 0, MOST_NODES - 1),
    ]
    names = list(dict.fromkeys(page[1])) if queues is None else [name.encode() for name in queues]
    of_queues = [script("queues", 0, *some) for some in cut(names, QUEUES_AT_ONCE)]
    of_nodes = [script("nodes", *some) for some in cut(node_ids, NODES_AT_ONCE)]
    answers = yield [*of_queues, *of_nodes]
    lines = [line for answer in answers[: len(of_queues)] for line in answer]
    nodes = [line for answer in answers[len(of_queues) :] for line in answer]
    found = _parsed(lines, nodes)
    in_order = sorted(found.nodes, key=lambda node: (node.lease_left_ms, node.node_id))
    cut_off = (queues is None and page[0] != b"0") or len(node_ids) == MOST_NODES
    stats = replace(head, queues=found.queues, nodes=tuple(in_order), cursor="more" if cut_off else "", pages=2)
    return stats if exact is None else (yield from _with_arrivals(stats, list(exact(stats.queues))))


def _parsed(queues: Sequence[object], nodes: Sequence[object]) -> Stats:
    return replies.stats([0, [], queues, 0, nodes, [0, 0, 0], b"", b""])


def _with_arrivals(stats: Stats, names: Sequence[str]) -> Reading[Stats]:
    """Read the oldest arrivals of some queues from the records of their next tasks."""
    if not names:
        return stats
    deep = max(1, min(DEEPEST, READ_DEEP // min(len(names), EXACT_AT_ONCE)))
    parts = cut((name.encode() for name in names), EXACT_AT_ONCE)
    answers = yield [script("queues", deep, *some) for some in parts]
    exact = {queue.queue: queue for queue in _parsed([line for answer in answers for line in answer], []).queues}
    return replace(stats, queues=tuple(exact.get(queue.queue, queue) for queue in stats.queues))
