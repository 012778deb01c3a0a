"""The log of operators' actions: who, what, when, and the outcome. It is a capped stream in the namespace.

An action has two entries: one before it is carried out, so that none goes unrecorded if this process dies, and one with
its outcome. An entry is written by a script whose first write is one that a full store accepts. So operators can still
discard tasks when memory has run out.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from relier.dashboard.query import Query
from relier.dashboard.security.access import DashboardUser
from relier.dashboard.session import DashboardSession
from relier.ledger import keys

KEPT = 10_000
MOST_SHOWN = 200
LONGEST_TARGET = 2_000

RECORD_ACTION = (Path(__file__).parent / "lua" / "record_action.lua").read_text()


def begin(session: DashboardSession, user: DashboardUser, action: str, target: dict[str, str]) -> str:
    """Record that a user starts an action. Return the id of the entry."""
    shown = {name: value[:LONGEST_TARGET] for name, value in target.items()}
    return _add(session, {"user": user.name, "role": user.role, "action": action, "target": shown})


def end(session: DashboardSession, begun: str, *, ok: bool, says: str) -> None:
    """Record the outcome of an action."""
    _add(session, {"of": begun, "ok": ok, "says": says[:LONGEST_TARGET]})


def _add(session: DashboardSession, entry: dict[str, Any]) -> str:
    key = keys.spell(session.ledger.prefix, "actions")
    added = session.store.command("EVAL", RECORD_ACTION, 1, key, KEPT, json.dumps(entry, ensure_ascii=False))
    return str(added.decode())


def actions(session: DashboardSession, query: Query) -> dict[str, Any]:  # noqa: ARG001 - the form of a read
    """Read the last actions, newest first."""
    return {"actions": _joined(_read(session, "+", "-", 2 * MOST_SHOWN))[:MOST_SHOWN]}


def outcome_of(session: DashboardSession, begun: str) -> dict[str, Any] | None:
    """Return one action with its outcome, or None if there is none with this id."""
    if not re.fullmatch(r"[0-9]{1,15}-[0-9]{1,9}", begun):
        return None
    key = keys.spell(session.ledger.prefix, "actions")
    rows = session.store.command("XRANGE", key, begun, "+", "COUNT", 50, retry=True)
    found = [action for action in _joined(list(reversed(rows))) if action["id"] == begun]
    return found[0] if found else None


def _read(session: DashboardSession, newest: str, oldest: str, most: int) -> list[Any]:
    key = keys.spell(session.ledger.prefix, "actions")
    rows: list[Any] = session.store.command("XREVRANGE", key, newest, oldest, "COUNT", most, retry=True)
    return rows


def _joined(rows: list[Any]) -> list[dict[str, Any]]:
    """Join the entries of each action. Rows are newest first, so an outcome comes before its beginning."""
    outcomes: dict[str, dict[str, Any]] = {}
    found = []
    for entry_id, (_, text) in rows:
        entry = json.loads(text)
        if "of" in entry:
            outcomes[entry["of"]] = entry
            continue
        begun = entry_id.decode()
        outcome = outcomes.get(begun, {"ok": None, "says": "The outcome is not recorded."})
        at_ms = int(begun.partition("-")[0])
        found.append({"id": begun, "at_ms": at_ms, **entry, "ok": outcome["ok"], "says": outcome["says"]})
    return found
