"""Schedules as applications and operators see them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from relier.errors import ScheduleDefinitionError
from relier.ledger.schedule_records import Firing, ScheduleState, StoredSchedule
from relier.schedules.definition import Definition, read_definition
from relier.schedules.timings import Timing


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@dataclass(frozen=True, slots=True)
class ScheduleFiring:
    """One entry of a schedule's history: the outcome of the occurrence at `intended`, recorded at `at`.

    `outcome`: fired, skipped_overlap, duplicate or missed. `skipped`: how many occurrences were missed, from `intended`
    on.
    """

    outcome: str
    intended: datetime
    at: datetime
    task_id: str
    skipped: int


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule. `problem`: the reason why this process cannot read its definition, or empty."""

    name: str
    state: ScheduleState
    task: str
    when: str
    next: datetime | None
    last_task_id: str
    queue: str
    priority: int
    catch_up: str
    overlap: str
    origin: str
    group: str
    history: tuple[ScheduleFiring, ...] = ()
    problem: str = ""


def info_of(stored: StoredSchedule) -> ScheduleInfo:
    """Return a stored schedule in the form that applications and operators see."""
    definition: Definition | None = None
    when, problem = "?", ""
    try:
        definition = read_definition(stored.name, stored.definition)
        when = str(definition.when())
    except ScheduleDefinitionError as error:
        problem = str(error)
    return ScheduleInfo(
        stored.name,
        stored.state,
        definition.task if definition else "?",
        when,
        None if stored.next_ms is None else moment(stored.next_ms),
        stored.last,
        definition.queue if definition else "?",
        definition.priority if definition else 0,
        definition.catch_up if definition else "?",
        definition.overlap if definition else "?",
        stored.origin,
        stored.group,
        tuple(map(_firing, stored.fires)),
        problem,
    )


def _firing(entry: Firing) -> ScheduleFiring:
    return ScheduleFiring(entry.outcome, moment(entry.intended_ms), moment(entry.at_ms), entry.task_id, entry.skipped)


def next_times(timing: Timing, first_ms: int | None, now_ms: int, n: int) -> list[int]:
    """Return the next `n` times: the stored next time, if there is one, and the times after it."""
    times: list[int] = [] if first_ms is None else [first_ms]
    while len(times) < n:
        at = timing.after(max(times[-1], now_ms) if times else now_ms)
        if at is None:
            break
        times.append(at)
    return times[:n]
