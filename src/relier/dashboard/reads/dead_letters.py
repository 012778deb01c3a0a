"""Dead letters: grouped by reason and task, and the latest of them with their messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relier.cli.namespace_reads import index_page, page_args
from relier.cli.payload_view import message_in
from relier.cli.pipelined.steps import Reading, script
from relier.cli.task_list import as_dict
from relier.dashboard.query import Query
from relier.dashboard.reads.tasks import RecordFilter, records_of
from relier.dashboard.session import DashboardSession
from relier.ledger.ledger import Ledger
from relier.ledger.records import Record
from relier.ledger.replies import read_history
from relier.ledger.stats import Stats
from relier.states import State

PAGES = 2  # pages of an index that one page of the dashboard looks through
MOST_AT_ONCE = 200
MOST_SHOWN = 50


def dead_letters(session: DashboardSession, query: Query) -> dict[str, Any]:
    wanted = RecordFilter.of(query)
    ((stats, records, cursor, shown, lines),) = session.read(_reading(session.ledger, wanted, query.cursor()))
    timely = [one for one in records if RecordFilter(since=wanted.since, until=wanted.until).matches(one)]
    return {
        "now_ms": stats.now_ms,
        "total": stats.ended["dead"],
        "looked_at": len(records),
        "reason": wanted.reason,
        "name": wanted.name,
        "since_ms": wanted.since,
        "until_ms": wanted.until,
        "groups": _groups(timely),
        "tasks": _with_messages(session, shown, lines),
        "matching": sum(map(wanted.matches, records)),
        "cursor": cursor,
    }


def _reading(
    ledger: Ledger, wanted: RecordFilter, cursor: str
) -> Reading[tuple[Stats, list[Record], str, list[Record], list[bytes]]]:
    """Read the number of dead letters, some of their records, and the last history lines of those that are shown."""
    records: list[Record] = []
    stats = None
    for _ in range(PAGES):
        args = page_args("ended", State.DEAD.value, cursor, MOST_AT_ONCE, wanted.name, newest_first=True)
        answer, *first = yield [script("page", *args), *([ledger.stats(" ")] if stats is None else [])]
        stats = first[0] if first else stats
        page = index_page(answer)
        records += records_of(page)
        cursor = page.cursor
        if not cursor:
            break
    shown = [one for one in records if wanted.matches(one)][:MOST_SHOWN]
    lines = (yield [script("last", *(one.id for one in shown))])[0] if shown else []
    if stats is None:
        raise AssertionError("the first step reads them")
    return stats, records, cursor, shown, lines


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


def _with_messages(
    session: DashboardSession, records: Sequence[Record], lines: Sequence[bytes]
) -> list[dict[str, Any]]:
    return [
        as_dict(record) | {"message": message_in(session, record, read_history(line).detail) if line else ""}
        for record, line in zip(records, lines, strict=True)
    ]
