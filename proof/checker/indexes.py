"""The invariants of the stored state: places, expiries, keys, counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from proof.checker.ghost import LIVE, Ghost, Violation, key_until
from proof.checker.limits import check_limits, lane_of
from proof.checker.lock_replies import check_holds
from proof.checker.timetable_replies import check_timetables
from proof.model.model import Model
from proof.model.state import Rec

if TYPE_CHECKING:
    from proof.checker.checker import Checker


def check_places(checker: Checker, changed: Iterable[str]) -> None:
    """Check that a live record is in exactly one index and does not expire, and an ended one only in the index of its
    state.
    """
    model, ghosts = checker.world.backend.model, checker.memory.ghosts
    for task_id in changed:
        rec, ghost = model.tasks.get(task_id), ghosts.get(task_id)
        if rec is not None and ghost is not None:
            _check_place(model, task_id, rec, ghost)
    if not checker.loose:
        indexes = (model.ready, model.owned, model.ended)
        placed = len(model.due) + sum(len(entries) for index in indexes for entries in index.values())
        placed += sum(len(waits) for waits in model.lane_waits.values())
        if placed != len(model.tasks):
            raise Violation("in-exactly-one-index", f"{placed} places for {len(model.tasks)} records")
        _check_expiring(model, ghosts)


def _check_expiring(model: Model, ghosts: Mapping[str, Ghost]) -> None:
    """Check that the index of expiry times lists exactly the tasks that may expire, each at its time."""
    waiting = {
        i: ghost.expires
        for i, ghost in ghosts.items()
        if ghost.expires and ghost.fence == 0 and ghost.state in {"queued", "scheduled"}
    }
    if model.expiring != waiting:
        raise Violation("expires-is-known", f"{model.expiring} may expire, the history says {waiting}")


def check_expired(checker: Checker, most: int, moved: int) -> None:
    """Check that, after a promote with room to spare, no task waits for its first attempt beyond its expiry."""
    late = [
        i
        for i, ghost in checker.memory.ghosts.items()
        if ghost.fence == 0 and 0 < ghost.expires <= checker.time_ms and ghost.state in {"queued", "scheduled"}
    ]
    if late and moved < most and not checker.loose:
        raise Violation("expires-holds", f"{late} still wait after a promote of {moved} of {most}")


def _check_place(model: Model, task_id: str, rec: Rec, ghost: Ghost) -> None:
    place, expected = _place(model, task_id, rec, ghost)
    if place is None:
        raise Violation("in-exactly-one-index", f"{task_id} is {rec.state} and not where it should be")
    if expected is not None and place != expected:
        raise Violation("stands-where-it-should", f"{task_id} ({rec.state}) stands at {place}, not {expected}")
    if rec.expiry == (rec.state in LIVE or ghost.lost == "hold"):
        raise Violation("live-has-no-expiry", f"{task_id} is {rec.state}, expiry {rec.expiry}")
    if rec.state == "dead":
        reason = rec.more.get("reason", "")
        expected_reason = "lost" if ghost.lost else ghost.reason
        if reason != expected_reason:
            raise Violation("dead-has-a-reason", f"{task_id}: {reason!r}, not {expected_reason!r}")


def _place(model: Model, task_id: str, rec: Rec, ghost: Ghost) -> tuple[float | None, float | None]:
    if rec.state == "scheduled":
        return model.due.get(task_id), ghost.due
    if rec.state == "queued":
        waits = model.lane_waits.get(lane_of(ghost), {}) if ghost.sub.limits else {}
        return model.ready.get(rec.queue, {}).get(task_id, waits.get(task_id)), ghost.order
    if rec.state == "running":
        return model.owned.get(rec.owner, {}).get(task_id), None
    return model.ended.get(rec.state, {}).get(task_id), ghost.eol


def check_keys(checker: Checker) -> None:
    """Check that a key belongs to the live task that holds it, or for its time to the task that is done, and to no
    other.
    """
    model, ghosts = checker.world.backend.model, checker.memory.ghosts
    held = 0
    for key, (task_id, until) in model.idem.items():
        ghost = ghosts.get(task_id)
        if ghost is None or ghost.sub.key != key:
            if not checker.loose:
                raise Violation("keys-have-owners", f"{key} belongs to {task_id}, which does not hold it")
        elif ghost.state in LIVE or ghost.lost:
            held += 1
            if until is not None:
                raise Violation("keys-last-as-long-as-their-task", f"{key} of {task_id} ends at {until}")
        elif ghost.state != "done" or until != key_until(ghost):
            raise Violation("keys-free-at-the-end", f"{key} of {task_id} ({ghost.state}) lasts until {until}")
    keyed = sum(1 for ghost in ghosts.values() if ghost.sub.key and (ghost.state in LIVE or ghost.lost))
    if keyed != held and not checker.loose:
        raise Violation("keys-last-as-long-as-their-task", f"{keyed} tasks live under a key, {held} hold one")


def check_counts(checker: Checker) -> None:
    """Check that cumulative counters match the records, and that only members own tasks."""
    model, memory = checker.world.backend.model, checker.memory
    counts = model.counts
    live = held = 0
    for rec in model.tasks.values():
        if rec.state in LIVE:
            live += 1
            held += rec.held or 0
    if checker.loose:
        return
    entered = counts.get("submitted", 0) + counts.get("replayed", 0)
    ended = counts.get("done", 0) + counts.get("dead", 0) + counts.get("cancelled", 0)
    if entered - ended != live or (entered, ended) != (memory.entered, memory.ended):
        told = f"{entered} entered, {ended} ended, {live} live; the history says {memory.entered} and {memory.ended}"
        raise Violation("counts-add-up", told)
    if counts.get("bytes", 0) != held:
        raise Violation("bytes-add-up", f"{counts.get('bytes', 0)} counted, {held} held")
    known = model.queues.issuperset
    if not known(model.ready) or not known(model.bells) or not known(model.idle):
        told = f"{sorted(model.ready)} hold tasks, {sorted(model.bells)} ring, {sorted(model.queues)} are known"
        raise Violation("queues-are-known", told)
    for boot in model.owned:
        if boot not in model.boots:
            raise Violation("owners-are-members", f"{boot} owns {sorted(model.owned[boot])} and is no member")


def check_all(checker: Checker) -> None:
    """Check everything from scratch: after a rollback, and when the faults have ended."""
    tasks, ghosts = checker.world.backend.model.tasks, checker.memory.ghosts
    if set(tasks) - checker.exempt != set(ghosts) - checker.exempt:
        raise Violation("accepted-is-kept", f"{sorted(set(tasks) ^ set(ghosts))}")
    check_places(checker, list(tasks))
    check_keys(checker)
    check_counts(checker)
    check_limits(checker)
    check_holds(checker)
    check_timetables(checker)
