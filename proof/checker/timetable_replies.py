"""Check what schedule, fire, unschedule, schedules and promote answer about users' schedules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from proof.checker.ghost import LIVE, Violation, holds_key
from proof.checker.timetable_ghost import GhostTimetable
from proof.model.state import ITEM
from relier.ledger.defaults import DUE_SCHEDULES
from relier.ledger.schedule_records import ScheduleAnswer
from relier.store.call import Call, Durability

if TYPE_CHECKING:
    from proof.checker.history import History

# The invariant that is violated if a move succeeds that should have got this verdict.
BROKEN_BY = {
    "taken": "origins-keep-their-own",
    "repeat": "repeat-changes-nothing",
    "conflict": "operators-see-what-they-change",
    "missing": "operators-see-what-they-change",
    "due": "due-is-not-dropped",
    "late": "edits-never-fire-the-past",
    "early": "never-early",
}


# --- schedule ------------------------------------------------------------------------------------------------------


def heard_schedule(history: History, raw: Any) -> dict[str, str]:
    _, name, group, origin, seen, state, ahead, definition = history.args
    ghost = history.memory.timetables.get(name)
    same = ghost is not None and (ghost.definition, ghost.group) == (definition, group)
    same = same and ghost is not None and (seen == "*" or ghost.origin == origin)
    if ghost is not None and seen == "*" and (ghost.state == "paused" or (same and ghost.state == "ended")):
        state = ghost.state
    expected, said = _expected(history, ghost, same, state), raw[0].decode()
    if said != expected:
        told = f"schedule of {name} ({seen}, {state}, {ahead}) was told {said}, it is {expected}: {ghost}"
        raise Violation(BROKEN_BY.get(expected, "verdict-fits") if said == "ok" else "verdict-fits", told)
    if said == "ok":
        version = _new_version(history, name, int(raw[2]))
        fresh = GhostTimetable(version, state, group, origin, definition, int(ahead) if state == "active" else None)
        if ghost is not None:
            fresh.last, fresh.fired = ghost.last, ghost.fired
        history.memory.timetables[name] = fresh
    elif said == "repeat" and ghost is not None:
        ghost.origin = origin
    _compare(history, name)
    return {}


def _expected(history: History, ghost: GhostTimetable | None, same: bool, state: str) -> str:
    _, _, group, _, seen, _, ahead, _ = history.args
    if ghost is not None and seen == "*" and (ghost.origin == "" or ghost.group != group):
        return "taken"
    if ghost is not None and same and ghost.state == state:
        return "repeat"
    if seen != "*" and seen != (str(ghost.version) if ghost else "0"):
        return "conflict" if ghost else "missing"
    if ghost is not None and ghost.owes(history.time_ms) and state in {"active", "ended"}:
        return "due"
    if state == "active" and int(ahead) <= max(history.time_ms, ghost.fired if ghost else history.memory.removed_fired):
        return "late"
    return "ok"


def _new_version(history: History, name: str, version: int) -> int:
    """Check that a version is above all earlier ones, also those in a lost suffix, if TIME is ahead of that suffix."""
    highest = history.table_versions.get(name, 0)
    if version <= highest and history.time_us > highest:
        raise Violation("versions-outgrow-rollbacks", f"{name} got version {version} after {highest}")
    history.table_versions[name] = max(highest, version)
    return version


# --- fire ----------------------------------------------------------------------------------------------------------


def heard_fire(history: History, raw: Any) -> dict[str, str]:
    name, version, intended, ahead, missed, _, n, *rest = history.args
    ghost, said = history.memory.timetables.get(name), raw[0].decode()
    times = [rest[(ITEM + 1) * i] for i in range(n)]
    expected = _expected_fire(history, ghost, version, intended, times)
    told = f"fire of {name} {version} {intended} was told {said}, it is {expected}: {ghost} at {history.time_ms}"
    if said != expected:
        raise Violation(_broken_by_fire(ghost, version, expected) if said == "ok" else "due-schedules-fire", told)
    if said == "ok" and ghost is not None:
        _accounted_for(ghost, intended, ahead, n + missed)
        entered = _runs(history, ghost, raw[4], times)
        ghost.next, ghost.fired = int(ahead) if ahead else None, max([intended, *times])
        if ghost.next is None:
            ghost.state = "ended"
        elif ghost.next <= intended:
            raise Violation("next-only-advances", told)
        _compare(history, name)
        return dict.fromkeys(entered, "queued")
    _compare(history, name)
    return {}


def _expected_fire(
    history: History, ghost: GhostTimetable | None, version: str, intended: int, times: list[int]
) -> str:
    if ghost is None:
        return "missing"
    if str(ghost.version) != version or ghost.state != "active" or ghost.next != intended:
        return "stale"
    return "early" if max([intended, *times]) > history.time_ms else "ok"


def _broken_by_fire(ghost: GhostTimetable | None, version: str, expected: str) -> str:
    if expected != "stale" or ghost is None:
        return BROKEN_BY[expected]
    if ghost.state != "active":
        return "paused-never-fires"
    return "old-versions-never-fire" if str(ghost.version) != version else "fires-once"


def _accounted_for(ghost: GhostTimetable, intended: int, ahead: Any, dealt_with: int) -> None:
    """Check that each occurrence between two intended times ran or is recorded as missed."""
    timing = json.loads(ghost.definition).get("timing", {}) if ghost.definition.startswith(b"{") else {}
    if timing.get("kind") == "every" and ahead and (int(ahead) - intended) // timing["period_ms"] != dealt_with:
        raise Violation(
            "every-occurrence-counts",
            f"{dealt_with} occurrences recorded from {intended} to {ahead}, not as many as there are: {ghost}",
        )


def _runs(history: History, ghost: GhostTimetable, flat: list[bytes], times: list[int]) -> list[str]:
    """Check that each run was submitted, unless the run before it is live, or its id or key is known."""
    name, overlap, first = history.args[0], history.args[5], 8
    entered: list[str] = []
    for i, at in enumerate(times):
        outcome, told_id = flat[2 * i].decode(), flat[2 * i + 1].decode()
        task_id = history.args[first + (ITEM + 1) * i]
        last = history.memory.ghosts.get(ghost.last)
        blocked = overlap == "skip" and (ghost.last in entered or (last is not None and last.state in LIVE))
        if blocked != (outcome == "skipped_overlap") and not history.loose:
            raise Violation("overlap-holds", f"{name} {at}: {outcome}, the last run {ghost.last} is {last}")
        if outcome == "fired":
            if (name, at) in history.memory.occurrences or task_id in history.memory.ghosts:
                raise Violation("fires-once", f"{name} at {at}: {task_id} ran before")
            history.memory.occurrences.add((name, at))
            history.offered[task_id] = history.world.subs[task_id]
            entered.append(task_id)
        elif outcome == "duplicate" and not _is_known(history, task_id, told_id, entered):
            raise Violation("occurrences-are-not-dropped", f"{name} at {at}: {task_id} is no duplicate of {told_id}")
        if not blocked and told_id == task_id:
            ghost.last = task_id
    return entered


def _is_known(history: History, task_id: str, told_id: str, entered: list[str]) -> bool:
    memory = history.memory
    if history.loose or task_id in memory.ghosts or memory.tombs.get(task_id, 0) > history.time_ms:
        return True
    other, key = memory.ghosts.get(told_id), history.world.subs[task_id].key
    held = other is not None and other.sub.key == key and holds_key(other, history.time_ms)
    return bool(key) and (held or told_id in entered)


# --- the rest ------------------------------------------------------------------------------------------------------


def heard_unschedule(history: History, raw: Any) -> dict[str, str]:
    _, name, version = history.args
    ghost, said = history.memory.timetables.get(name), raw[0].decode()
    expected = "missing" if ghost is None else "ok" if str(ghost.version) == version else "conflict"
    if said != expected:
        told = f"unschedule of {name} ({version}) was told {said}, it is {expected}: {ghost}"
        raise Violation("operators-see-what-they-change" if said == "ok" else "verdict-fits", told)
    if said == "ok":
        history.memory.removed_fired = max(history.memory.removed_fired, history.memory.timetables[name].fired)
        del history.memory.timetables[name]
        history.durable_tables.pop(name, None)
    _compare(history, name)
    return {}


def heard_schedules(history: History, raw: Any) -> dict[str, str]:
    for name, version, state, _, _, definition, last, at, _, _ in raw[2:]:
        ghost = history.memory.timetables.get(name.decode())
        told = (int(version), state.decode(), definition, last.decode(), int(at) if at else None)
        known = ghost and (ghost.version, ghost.state, ghost.definition, ghost.last, ghost.next)
        if told != known:
            raise Violation("schedules-as-told", f"{name.decode()} was told to be {told}, it is {known}")
    return {}


def heard_due(history: History, raw: Any) -> dict[str, str]:
    """Check that a promote returns all schedules that are due, and no others."""
    tables, now, skip = history.memory.timetables, history.time_ms, int(history.args[1])
    group = str(history.args[2])
    due = sorted((t.next or 0, name) for name, t in tables.items() if t.group == group and t.owes(now))
    expected = [(name, tables[name].version, at) for at, name in due[skip : skip + DUE_SCHEDULES]]
    found = [(name.decode(), int(version), int(at)) for name, version, at, _ in raw[3:]]
    if found != expected:
        raise Violation("due-schedules-are-found", f"promote found {found}, due are {expected}")
    ahead = min(
        (t.next for t in tables.values() if t.next is not None and t.next > now and t.group == group), default=0
    )
    if ahead and not found and (not raw[1] or int(raw[1]) > ahead):
        raise Violation("due-schedules-are-found", f"promote said next is {raw[1]}, a schedule is due at {ahead}")
    return {}


def _compare(history: History, name: str) -> None:
    """Compare the record with what replies have reported about it."""
    table, ghost = history.world.backend.model.timetables.get(name), history.memory.timetables.get(name)
    kept = table and (table.version, table.state, table.group, table.origin, table.next, table.last, table.fired)
    told = ghost and (ghost.version, ghost.state, ghost.group, ghost.origin, ghost.next, ghost.last, ghost.fired)
    if kept != told or (table and ghost and table.definition != ghost.definition):
        raise Violation("schedules-as-told", f"{name} is {kept}, not {told}")
    if table is not None and (table.next is not None) != (table.state == "active"):
        raise Violation("active-is-in-the-index", f"{name} is {table.state} with next {table.next}")


def check_timetables(history: History) -> None:
    """Check every schedule from scratch."""
    for name in history.world.backend.model.timetables.keys() | history.memory.timetables.keys():
        _compare(history, name)


def acknowledge_timetable(history: History, call: Call[Any], answer: ScheduleAnswer) -> None:
    name = str(call.args[1])
    ghost = history.memory.timetables.get(name)
    if answer.verdict in {"ok", "repeat"} and ghost is not None and ghost.version == int(answer.version):
        history.durable_tables[name] = (ghost.version, call.durability)


def timetables_hold(history: History, respected: Durability) -> None:
    """Check that everything acknowledged at the level that a rollback respects is still there."""
    for name, (version, level) in list(history.durable_tables.items()):
        ghost = history.memory.timetables.get(name)
        if level is respected and (ghost is None or ghost.version < version):
            raise Violation("level-holds", f"schedule {name} was version {version} at {level}, now it is {ghost}")
        if ghost is None or ghost.version < version:
            del history.durable_tables[name]
