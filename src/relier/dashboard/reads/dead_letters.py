"""Dead letters: grouped by reason and task, and the latest of them with their messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relier.cli.namespace_reads import NamespaceReads
from relier.cli.payload_view import message_in
from relier.cli.task_list import as_dict
from relier.dashboard.reads.query import Query
from relier.dashboard.session import DashboardSession
from relier.ledger.records import Record
from relier.ledger.replies import read_history
from relier.states import State

MOST_LOOKED = 500
MOST_SHOWN = 50


def dead_letters(session: DashboardSession, query: Query) -> dict[str, Any]:
    reason, name = query.text("reason"), query.text("name")
    stats = session.run(session.ledger.stats())  # the first page has the number of dead letters
    reads = NamespaceReads(session.store, session.ledger)
    page = reads.page("ended", State.DEAD.value, query.cursor(), MOST_LOOKED, name, newest_first=True)
    records = [entry.record for entry in page.entries if entry.record is not None]
    wanted = [one for one in records if reason in ("", one.reason)]
    return {
        "now_ms": stats.now_ms,
        "total": stats.ended["dead"],
        "looked_at": len(records),
        "reason": reason,
        "name": name,
        "groups": _groups(records),
        "tasks": _with_messages(session, reads, wanted[:MOST_SHOWN]),
        "matching": len(wanted),
        "cursor": page.cursor,
    }


def _groups(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return, for each task and reason, how many died and the first and last time, the largest groups first."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for one in records:
        group = groups.setdefault(
            (one.reason, one.name),
            {"reason": one.reason, "name": one.name, "count": 0, "first_ms": one.moved_ms, "last_ms": one.moved_ms},
        )
        group["count"] += 1
        group["first_ms"] = min(group["first_ms"], one.moved_ms)
        group["last_ms"] = max(group["last_ms"], one.moved_ms)
    return sorted(groups.values(), key=lambda group: (-group["count"], group["reason"], group["name"]))


def _with_messages(session: DashboardSession, reads: NamespaceReads, records: Sequence[Record]) -> list[dict[str, Any]]:
    lines = reads.last_history_lines([record.id for record in records])
    return [
        as_dict(record) | {"message": message_in(session, record, read_history(line).detail) if line else ""}
        for record, line in zip(records, lines, strict=True)
    ]
