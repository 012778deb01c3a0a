"""Schedules as values: the arguments and replies of the moves on schedules, all frozen.

Times are whole milliseconds on the store's TIME. A version is text of 16 digits, like a fence.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

NATIVE = "native"  # the group that workers and `rl scheduler` fire
CELERY = "celery"  # the group that Celery's beat fires
GROUPS = (NATIVE, CELERY)
DECLARE = "*"  # in place of a version: create the schedule, or update one of the same origin
NEW = "0"  # in place of a version: the schedule must not exist
MAX_DEFINITION_BYTES = 64 * 1024
FIRE_RUNS = 20  # the most tasks that one `fire` submits

Overlap = Literal["allow", "skip"]


class ScheduleState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"  # by an operator
    DISABLED = "disabled"  # the code of its origin no longer declares it
    ENDED = "ended"  # there is no further time


class FireOutcome(StrEnum):
    """The outcome of an occurrence."""

    FIRED = "fired"
    SKIPPED_OVERLAP = "skipped_overlap"  # the run before it had not ended
    MISSED = "missed"  # the catch-up rule excluded it, for example because it was too late
    DUPLICATE = "duplicate"  # its id was known, or another task had its idempotency key


class ScheduleVerdict(StrEnum):
    """The answer to `schedule` or `fire`."""

    OK = "ok"
    REPEAT = "repeat"  # there was nothing to change
    CONFLICT = "conflict"  # a different version is stored
    MISSING = "missing"
    TAKEN = "taken"  # a schedule of this name was created at run time, or belongs to another group
    LATE = "late"  # the next time is not after `floor_ms`
    DUE = "due"  # the stored version is due and must be fired first
    STALE = "stale"  # a different version or intended time is stored, perhaps because this call has already run
    EARLY = "early"  # the occurrence is not due yet


class Firing(msgspec.Struct, frozen=True):
    """One entry of a schedule's history. `skipped`: how many occurrences were missed, from `intended_ms` on."""

    outcome: str
    intended_ms: int
    at_ms: int
    task_id: str
    skipped: int = 0


class StoredSchedule(msgspec.Struct, frozen=True):
    """A schedule as stored. `next_ms`: None unless the schedule is active. `last`: the id of the latest run."""

    name: str
    version: str
    state: ScheduleState
    group: str
    origin: str
    definition: bytes
    last: str
    next_ms: int | None
    fired_ms: int
    fires: tuple[Firing, ...] = ()


class SchedulePage(msgspec.Struct, frozen=True):
    """One page of schedules. `cursor` is empty on the last page; `unreadable`: names whose record cannot be read."""

    now_ms: int
    schedules: tuple[StoredSchedule, ...]
    cursor: str = ""
    unreadable: tuple[str, ...] = ()


class ScheduleAnswer(msgspec.Struct, frozen=True):
    """The answer to `schedule`: the verdict, and the stored schedule after the call."""

    verdict: ScheduleVerdict
    state: str
    version: str
    next_ms: int | None
    floor_ms: int
    origin: str
    definition: bytes


class FireAnswer(msgspec.Struct, frozen=True):
    """The answer to `fire`: the verdict, the stored schedule after the call, and (outcome, task id) of each run."""

    verdict: ScheduleVerdict
    state: str
    version: str
    next_ms: int | None
    outcomes: tuple[tuple[str, str], ...] = ()


class DueSchedule(msgspec.Struct, frozen=True):
    """A schedule that is due, as `promote` found it."""

    name: str
    version: str
    intended_ms: int
    definition: bytes
