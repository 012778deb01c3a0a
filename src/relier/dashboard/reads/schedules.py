"""Schedules: their next times, and the outcomes of their last occurrences."""

from __future__ import annotations

import contextlib
from typing import Any

from relier.cli.commands.schedules.shared import as_dict, operations_of, to_ms
from relier.cli.pipelined.steps import Reading, raw
from relier.dashboard.query import Query
from relier.dashboard.session import DashboardSession
from relier.errors import ScheduleDefinitionError
from relier.ledger import keys
from relier.ledger.ledger import Ledger
from relier.ledger.replies import text
from relier.ledger.schedule_records import GROUPS
from relier.schedules.api import ScheduleOperations
from relier.schedules.views import ScheduleFiring, ScheduleInfo, info_of
from relier.store.sync_wire import run_sync

MOST_SHOWN = 200
MOST_READ = 500  # definitions that are read, when a filter may leave some out
MOST_NAMES = 5_000
NEXT_TIMES = 5


def schedule_operations(session: DashboardSession) -> tuple[ScheduleOperations, int]:
    """Return the operations on schedules, and the store's time (ms)."""
    with contextlib.suppress(ImportError):
        import relier.celery.beat  # noqa: F401 - registers how the times of its entries are computed
    return operations_of(session)


def schedules(session: DashboardSession, query: Query) -> dict[str, Any]:
    part = query.text("q")
    ((now_ms, total, infos),) = session.read(_reading(session.ledger, part))
    found = [info for info in infos if part in info.name or part in info.task]
    return {
        "now_ms": now_ms,
        "q": part,
        "total": len(found) if part else total,
        "schedules": [_row(info) for info in found[:MOST_SHOWN]],
        "complete": total <= MOST_READ,
    }


def _reading(ledger: Ledger, part: str) -> Reading[tuple[int, int, list[ScheduleInfo]]]:
    """Read the schedules that are due next. `part`: those with it in their names come first."""
    indexes = [keys.spell(ledger.prefix, "schedules", group) for group in GROUPS]
    (seconds, micros), *groups = yield [raw("TIME"), *(raw("ZRANGE", index, 0, MOST_NAMES - 1) for index in indexes)]
    names = list(dict.fromkeys(text(name) for group in groups for name in group))
    chosen = sorted(names, key=lambda name: part not in name)[: MOST_READ if part else MOST_SHOWN]
    pages = yield [ledger.schedules(name, fires=1) for name in chosen]
    infos = [info_of(stored) for page in pages for stored in page.schedules]
    return int(seconds) * 1000 + int(micros) // 1000, len(names), sorted(infos, key=lambda info: info.name)


def schedule(session: DashboardSession, query: Query) -> dict[str, Any]:
    name = query.needed("name")
    operations, now_ms = schedule_operations(session)
    info = run_sync(operations.get(name))
    try:
        times = [to_ms(at) for at in run_sync(operations.next_times(name, NEXT_TIMES))]
    except ScheduleDefinitionError:  # the page shows info.problem
        times = []
    history = [_firing(firing) for firing in info.history]
    return {"now_ms": now_ms, **_row(info), "times_ms": times, "history": history}


def _row(info: ScheduleInfo) -> dict[str, Any]:
    last = info.history[0] if info.history else None
    return as_dict(info) | {"next": None, "history": None, "last": _firing(last) if last else None}


def _firing(firing: ScheduleFiring) -> dict[str, Any]:
    return {
        "outcome": firing.outcome,
        "at_ms": to_ms(firing.at),
        "intended_ms": to_ms(firing.intended),
        "task_id": firing.task_id or None,
        "skipped": firing.skipped,
    }
