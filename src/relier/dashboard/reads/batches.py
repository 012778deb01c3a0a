"""Batches, groups and chains, with their progress."""

from __future__ import annotations

from typing import Any

from relier.cli.commands.batches.commands import as_dict
from relier.dashboard.reads.query import Query
from relier.dashboard.session import DashboardSession
from relier.ledger.batches.records import BatchState, Stage

MOST_SHOWN = 50
MOST_MEMBERS = 100


def batches(session: DashboardSession, query: Query) -> dict[str, Any]:
    page = session.run(session.ledger.batches(query.text("cursor") or None, MOST_SHOWN))
    found = [each for each in page.batches if not each.parent]
    return {
        "now_ms": session.run(session.ledger.schedules("-")).now_ms,
        "batches": [as_dict(each) for each in found],
        "cursor": page.cursor or "",
    }


def batch(session: DashboardSession, query: Query) -> dict[str, Any]:
    batch_id = query.needed("id")
    found = session.run(session.ledger.batch(batch_id))
    members = {
        stage.value: [
            {"id": member.id, "place": member.place, "batch": member.inner}
            for member in session.run(session.ledger.members(batch_id, stage, most=MOST_MEMBERS))
        ]
        for stage in (Stage.LIVE, Stage.DEAD, Stage.CANCELLED, Stage.DONE)
    }
    return {
        "now_ms": session.run(session.ledger.schedules("-")).now_ms,
        **as_dict(found),
        "is_chain": found.is_chain,
        "ended": found.state is BatchState.ENDED,
        "stages": members,
        "shown": MOST_MEMBERS,
    }
