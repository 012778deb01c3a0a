"""Parse the raw replies of the scripts for schedules."""

from __future__ import annotations

import json
from typing import Any

from relier.errors import VersionConflictError
from relier.ledger.replies import number, text, word
from relier.ledger.schedule_records import (
    FireAnswer,
    Firing,
    ScheduleAnswer,
    SchedulePage,
    ScheduleState,
    ScheduleVerdict,
    StoredSchedule,
)


def scheduled(raw: Any) -> ScheduleAnswer:
    verdict, state, version, at, floor, origin, definition = raw
    return ScheduleAnswer(
        ScheduleVerdict(text(verdict)),
        text(state),
        text(version),
        _optional(at),
        int(floor),
        text(origin),
        definition,
    )


def fired(raw: Any) -> FireAnswer:
    verdict, state, version, at, flat = raw
    outcomes = tuple((text(flat[i]), text(flat[i + 1])) for i in range(0, len(flat), 2))
    return FireAnswer(ScheduleVerdict(text(verdict)), text(state), text(version), _optional(at), outcomes)


def unscheduled(name: str, raw: Any) -> bool:
    """Return whether there was a schedule to remove. Raise VersionConflictError if a different version is stored."""
    verdict, _, version = raw
    if word(verdict, "ok", "missing", "conflict") == "conflict":
        raise VersionConflictError(
            f"schedule {name!r} was not removed: it changed since it was read (now version {text(version)}); read "
            f"the schedule again, then repeat the change"
        )
    return bool(verdict == b"ok")


def schedules(raw: Any) -> SchedulePage:
    now, cursor, *rows = raw
    sound = tuple(_stored(*row) for row in rows if len(row) > 1)
    return SchedulePage(int(now), sound, text(cursor), tuple(text(row[0]) for row in rows if len(row) == 1))


def _stored(
    name: Any,
    version: Any,
    state: Any,
    group: Any,
    origin: Any,
    definition: Any,
    last: Any,
    at: Any,
    fired_at: Any,
    fires: Any,
) -> StoredSchedule:
    return StoredSchedule(
        text(name),
        text(version),
        ScheduleState(text(state)),
        text(group),
        text(origin),
        definition,
        text(last),
        _optional(at),
        int(fired_at),
        tuple(map(read_firing, fires)),
    )


def read_firing(raw: bytes) -> Firing:
    try:
        outcome, intended, at, task_id, skipped = json.loads(raw)
        return Firing(outcome, number(intended), number(at), task_id, number(skipped))
    except (ValueError, TypeError):
        return Firing("unreadable", 0, 0, "")


def _optional(raw: Any) -> int | None:
    return int(raw) if raw else None
