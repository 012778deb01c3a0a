"""The rules of the audit for schedules: each has a readable record and its place in the index of its group."""

from __future__ import annotations

from relier.cli.audit.findings import Finding, ObservedKey, command


def _schedule(seen: ObservedKey) -> Finding | None:
    state, score, group = seen.fact(0), seen.fact(1), seen.fact(2)
    if not state:
        return seen.finding(
            "schedule_unreadable",
            f"The record of schedule {seen.of!r} cannot be read: another program wrote to it. It does not fire.",
            f"Delete it, then create the schedule again: {command('UNLINK', seen.key)}",
        )
    if seen.ttl >= 0:
        return seen.finding(
            "live_with_expiry",
            f"The record of schedule {seen.of!r} has an expiry and would be lost.",
            f"Remove the expiry: {command('PERSIST', seen.key)}",
        )
    if not score or (state == "active" and score == "inf"):
        return seen.finding(
            "schedule_in_no_index",
            f"Schedule {seen.of!r} is {state}, but the index of {group} schedules does not hold "
            f"{'its next time' if score else 'it'}{': it never fires' if state == 'active' else ''}.",
            "Pause it and resume it: `rl schedules pause` and `rl schedules resume` write its place again.",
        )
    return None


def _fires(seen: ObservedKey) -> Finding | None:
    if seen.fact(0):
        return None
    return seen.finding(
        "history_without_schedule",
        f"The history of schedule {seen.of!r} is left over: there is no such schedule.",
        f"Delete it: {command('UNLINK', seen.key)}",
    )


def judge_planned(seen: ObservedKey) -> Finding | None:
    """Return what is wrong with an entry of an index of schedules, or None if it is sound or no longer exists."""
    score, home, has_key = seen.fact(0), seen.fact(1), seen.fact(2)
    if not score or home == seen.key or (has_key and not home):  # an unreadable record is reported once, for its key
        return None
    if home:
        problem = f"Schedule {seen.of!r} belongs to another group, but {seen.key} lists it too."
    else:
        problem = f"{seen.key} lists schedule {seen.of!r}, which has no record: another program deleted it."
    return Finding(
        "schedule_entry_without_record",
        seen.key,
        problem,
        f"A sweep removes the entry when it is due; or remove it now: {command('ZREM', seen.key, seen.of)}",
    )


SCHEDULE_JUDGES = {"schedule": _schedule, "fires": _fires}
