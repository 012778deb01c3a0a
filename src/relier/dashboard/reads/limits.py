"""Limits of running tasks: how many run, how many wait, and what an operator set."""

from __future__ import annotations

from typing import Any

from relier.cli.commands.limits.listing import numbers_dict
from relier.cli.pipelined.limits import limits_reading
from relier.dashboard.query import Query
from relier.dashboard.session import DashboardSession
from relier.ledger.limit_overview import LimitOverview
from relier.ledger.limit_records import LimitedKey

MOST_SHOWN = 200
MOST_READ = 500  # keys whose numbers and names are read, when a filter may leave some out


def limits(session: DashboardSession, query: Query) -> dict[str, Any]:
    part = query.text("q")
    (read,) = session.read(limits_reading(session.ledger, MOST_READ if part else MOST_SHOWN, part))
    found = read.overview
    rows = [key for key in found.keys.values() if part in key.key or part in key.name]
    rows.sort(key=lambda key: (key.running - key.live, key.key))
    unused = [
        {"key": name, "name": None, "running": 0, "waiting": 0, **numbers_dict(numbers), "set_by_operator": name}
        for name, (numbers, _) in sorted(found.set.items())
        if name not in found.keys and part in name
    ]
    every = [*(_row(key, found) for key in rows), *unused]
    return {
        "now_ms": found.now_ms,
        "q": part,
        "total": len(every) if part else max(len(every), read.total),
        "limits": every[:MOST_SHOWN],
        "complete": read.complete and (not part or read.total <= MOST_READ),
    }


def _row(key: LimitedKey, found: LimitOverview) -> dict[str, Any]:
    counts = {"key": key.key, "name": key.name or None, "running": key.running, "waiting": key.live - key.running}
    return counts | numbers_dict(key.numbers) | {"set_by_operator": found.chosen(key) or None}
