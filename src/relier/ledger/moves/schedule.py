"""The moves on schedules. `promote` (moves/operator.py) finds the schedules that are due."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from relier.errors import InvalidSubmissionError, PayloadTooLargeError
from relier.ledger import schedule_replies
from relier.ledger.checks import check_name, check_number, check_submission, check_word
from relier.ledger.defaults import FIRES_KEPT
from relier.ledger.moves.base import MoveBase, durability_flag
from relier.ledger.records import Submission
from relier.ledger.schedule_records import (
    FIRE_RUNS,
    MAX_DEFINITION_BYTES,
    NATIVE,
    FireAnswer,
    Overlap,
    ScheduleAnswer,
    SchedulePage,
    ScheduleState,
)
from relier.store.call import Arg, Call, Durability


class ScheduleMoves(MoveBase):
    def schedule(
        self,
        name: str,
        version: str,
        definition: bytes,
        next_ms: int | None,
        *,
        state: ScheduleState = ScheduleState.ACTIVE,
        group: str = NATIVE,
        origin: str = "",
        durability: Durability = Durability.MEMORY,
    ) -> Call[ScheduleAnswer]:
        """Create or change a schedule. `version`: the version that the caller read, or `NEW`, or `DECLARE`."""
        check_name("the name of a schedule", name)
        check_word("the version of a schedule", version)
        check_word("the group of a schedule", group)
        if len(definition) > MAX_DEFINITION_BYTES:
            raise PayloadTooLargeError(
                f"the definition of schedule {name!r} is {len(definition):,} bytes, the limit is "
                f"{MAX_DEFINITION_BYTES:,}; nothing was written; store the data elsewhere and pass a reference"
            )
        if (next_ms is None) is (state is ScheduleState.ACTIVE):
            raise InvalidSubmissionError(
                f"schedule {name!r} cannot be {state} with next time {next_ms}: active schedules need a next time, and "
                f"others must not have one; nothing was written"
            )
        args: list[Arg] = [durability_flag(durability), name, group, origin, version, state.value]
        args += ["" if next_ms is None else next_ms, definition]
        return self._call("schedule", args, schedule_replies.scheduled, durability)

    def fire(
        self,
        name: str,
        version: str,
        intended_ms: int,
        next_ms: int | None,
        runs: Sequence[tuple[int, Submission]],
        *,
        missed: int = 0,
        overlap: Overlap = "allow",
    ) -> Call[FireAnswer]:
        """Submit the tasks of due occurrences, and advance the schedule to its next time.

        `runs`: (intended time, task), oldest first. `missed`: how many due occurrences are not run.
        """
        check_name("the name of a schedule", name)
        check_number("missed", missed)
        times = [at for at, _ in runs]
        last = max(intended_ms, *times) if times else intended_ms
        if len(runs) > FIRE_RUNS or times != sorted(times) or (next_ms is not None and next_ms <= last):
            raise InvalidSubmissionError(
                f"one `fire` takes at most {FIRE_RUNS} runs, in the order of their times, and a later next time, not "
                f"runs at {times} and next time {next_ms}; nothing was written"
            )
        args: list[Arg] = [name, version, intended_ms, "" if next_ms is None else next_ms, missed, overlap, len(runs)]
        for at, task in runs:
            check_submission(task, self._max_bytes)
            args += (at, *task.args())
        return self._call("fire", args, schedule_replies.fired)

    def unschedule(self, name: str, version: str, durability: Durability = Durability.MEMORY) -> Call[bool]:
        """Remove a schedule. Return False if there was none."""
        check_name("the name of a schedule", name)
        check_word("the version of a schedule", version)
        args: list[Arg] = [durability_flag(durability), name, version]
        return self._call("unschedule", args, partial(schedule_replies.unscheduled, name), durability)

    def schedules(
        self, name: str = "", *, group: str = NATIVE, cursor: str = "", fires: int = FIRES_KEPT
    ) -> Call[SchedulePage]:
        """Read one schedule, or one page of the schedules of a group, each with its last firings."""
        check_number("fires", fires, 1, FIRES_KEPT)
        return self._call("schedules", [name, group, cursor or "0", fires], schedule_replies.schedules)
