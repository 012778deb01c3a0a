"""Batches, groups and chains, with their progress, and as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relier.cli.commands.batches.commands import as_dict
from relier.cli.pipelined.steps import Reading, TriedRead, answers_to, raw, script
from relier.dashboard.query import Query
from relier.dashboard.reads.batch_graph import graph_of
from relier.dashboard.session import DashboardSession
from relier.ledger.batches.records import BatchMember, BatchRecord, BatchState, Stage
from relier.ledger.ledger import Ledger
from relier.ledger.records import Task

MOST_SHOWN = 50
MOST_MEMBERS = 100
MOST_DRAWN = 60  # members whose names are read for the graph
MOST_PLANS = 50
LONGEST_PLAN = 65_536
STAGES = (Stage.LIVE, Stage.DEAD, Stage.CANCELLED, Stage.DONE)


def batches(session: DashboardSession, query: Query) -> dict[str, Any]:
    reads = answers_to(session.ledger.batches(query.text("cursor") or None, MOST_SHOWN), raw("TIME"))
    ((page, time),) = session.read(reads)
    found = [each for each in page.batches if not each.parent]
    return {"now_ms": _ms(time), "batches": [as_dict(each) for each in found], "cursor": page.cursor or ""}


def batch(session: DashboardSession, query: Query) -> dict[str, Any]:
    (read,) = session.read(_reading(session.ledger, query.needed("id")))
    now_ms, found, stages, plans, details = read
    members = {
        stage.value: [{"id": one.id, "place": one.place, "batch": one.inner} for one in some]
        for stage, some in zip(STAGES, stages, strict=True)
    }
    return {
        "now_ms": now_ms,
        **as_dict(found),
        "is_chain": found.is_chain,
        "ended": found.state is BatchState.ENDED,
        "stages": members,
        "shown": MOST_MEMBERS,
        "graph": graph_of(found, [one for some in stages for one in some], details, plans),
    }


def _reading(
    ledger: Ledger, batch_id: str
) -> Reading[tuple[int, BatchRecord, list[Sequence[BatchMember]], list[Any], dict[str, Task | BatchRecord]]]:
    """Read a batch and some of its members: then the tasks and inner batches that the graph shows."""
    time, found, plans, *stages = yield [
        raw("TIME"),
        ledger.batch(batch_id),
        script("plans", batch_id, MOST_PLANS, LONGEST_PLAN),
        *(ledger.members(batch_id, stage, most=MOST_MEMBERS) for stage in STAGES),
    ]
    drawn = [one for some in stages for one in some][:MOST_DRAWN]
    calls = {one.id: ledger.batch(one.id) if one.inner else ledger.get(one.id) for one in drawn}
    calls |= {task_id: ledger.get(task_id) for task_id in found.callbacks.values()}
    answers = yield [TriedRead(call) for call in calls.values()]
    known = zip(calls, answers, strict=True)
    details = {one: answer for one, answer in known if isinstance(answer, Task | BatchRecord)}
    return _ms(time), found, stages, plans, details


def _ms(time: Sequence[bytes]) -> int:
    return int(time[0]) * 1000 + int(time[1]) // 1000
