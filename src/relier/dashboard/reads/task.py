"""One task: its timeline in words, its attempts, and its values as the redaction hook shows them."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

from relier.cli.commands.why import look
from relier.cli.output import in_utc
from relier.cli.payload_view import describe, editable, with_redacted_failures
from relier.cli.session import CommandFailure
from relier.cli.task_list import as_dict, history_dict
from relier.cli.task_timeline import Surroundings, timeline
from relier.dashboard.query import Query
from relier.dashboard.session import DashboardSession
from relier.errors import RelierError
from relier.ledger.records import Task
from relier.redact import shown
from relier.states import LIVE, State

LONGEST_VALUE = 20_000


def task(session: DashboardSession, query: Query) -> dict[str, Any]:
    found, around = look(session, query.needed("id"))
    found = with_redacted_failures(session, found)
    record, payload = found.record, describe(session, found)
    return as_dict(record) | {
        "now_ms": around.now_ms,
        "fence": record.fence if record.fence != "0" else None,
        "due_ms": around.due_ms,
        "kept_until_ms": around.kept_until_ms,
        "batch": record.more.get("batch", "").partition(" ")[0] or None,
        "progress": _shown(session, found, record.progress) if record.progress else None,
        "why": _why(found, around),
        "attempts": [history_dict(entry) | {"fence": entry.fence} for entry in found.history],
        "payload": payload,
        "log_url": session.settings.dashboard_log_url.replace("{task_id}", quote(record.id, safe="")) or None,
        "trace_url": _trace_url(session.settings.dashboard_trace_url, payload.get("trace")),
        "result": _value(session, found, found.result, "result"),
        "checkpoint": _value(session, found, found.checkpoint, "checkpoint"),
        "steps": _steps(found),
        "more_steps": bool(found.steps_left),
        "may": allowed_actions(found),
        "edit": _editable(session, found),
    }


def _trace_url(template: str, trace: str | None) -> str | None:
    """Return the address of a trace, or None without a template or a valid trace. `trace`: a W3C traceparent."""
    known = re.fullmatch(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}", trace or "")
    if not template or known is None:
        return None
    return template.replace("{trace_id}", known[1]).replace("{span_id}", known[2])


def _why(found: Task, around: Surroundings) -> list[dict[str, Any]]:
    """Return the timeline, with times in UTC: the page shows them in the viewer's zone."""
    before = in_utc.set(True)
    try:
        return [{"at_ms": line.at_ms, "says": line.text} for line in timeline(found, around)]
    finally:
        in_utc.reset(before)


def allowed_actions(found: Task) -> list[str]:
    """Return what an operator may do with a task in its present state."""
    state = found.record.state
    if state in LIVE:
        return ["cancel"]
    return ["replay", "discard"] if state is State.DEAD else ["discard"]


def _editable(session: DashboardSession, found: Task) -> str | None:
    """Return the arguments of a dead task for editing, or None if they cannot be edited here."""
    if found.record.state is not State.DEAD:
        return None
    try:
        return editable(session, found)
    except (CommandFailure, RelierError):
        return None


def _steps(found: Task) -> list[dict[str, Any]]:
    return [{"name": name, "bytes": len(raw)} for name, raw in sorted(found.steps.items())]


def _value(session: DashboardSession, found: Task, raw: bytes | None, what: str) -> dict[str, Any] | None:
    """Return a stored value: decrypted, redacted, and cut if it is long. None if there is none."""
    if raw is None:
        return None
    try:
        plain = session.keyring.unwrap(raw, found.record.id, what)
        value = json.loads(plain)
    except (RelierError, ValueError):
        return {"bytes": len(raw), "text": None}
    return {"bytes": len(raw), "text": _shown(session, found, value)[:LONGEST_VALUE]}


def _shown(session: DashboardSession, found: Task, value: Any) -> str:
    redacted = shown(session.settings, found.record.name, value)
    if isinstance(redacted, str):
        return redacted
    try:
        return json.dumps(redacted, indent=2, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return f"(hidden: {session.settings.redact} did not return plain data)"
