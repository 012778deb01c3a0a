"""Change schedules in the ledger: create, edit, pause, resume, disable, declare, remove.

The methods are coroutines over `run`, which executes one call. An event loop awaits them, `run_sync` runs them to
their end (submit/ledger_access.py), and the simulator in proof/ steps through them.

One script makes each change, or refuses it. If the script answers `late`, the caller computes the next time again, from
the time in the answer. If it answers `due`, the caller first fires the old version, by its own catch-up rule. So an
edit neither fires past times under the new definition nor drops an occurrence that was already due.
"""

from __future__ import annotations

from dataclasses import dataclass

from relier.errors import ScheduleConflictError, ScheduleDefinitionError, ScheduleNotFoundError
from relier.ledger.schedule_records import (
    DECLARE,
    NATIVE,
    NEW,
    DueSchedule,
    ScheduleAnswer,
    ScheduleState,
    ScheduleVerdict,
    StoredSchedule,
)
from relier.schedules.definition import read_definition
from relier.schedules.firing import FireContext, RunCall
from relier.schedules.timings import Timing
from relier.store.call import Durability

MOST_ROUNDS = 100  # calls for one change: each may have to fire up to 20 runs of the old version first


@dataclass(frozen=True, slots=True)
class DesiredSchedule:
    """The desired state of a schedule. `version`: the version that the caller read, or NEW, or DECLARE."""

    name: str
    version: str
    definition: bytes
    timing: Timing | None  # None if the schedule is not to be active
    state: ScheduleState = ScheduleState.ACTIVE
    group: str = NATIVE
    origin: str = ""


class ScheduleChanges:
    """Change the schedules of one namespace."""

    def __init__(self, context: FireContext, run: RunCall, durability: Durability = Durability.MEMORY) -> None:
        self._context = context
        self._run = run
        self._durability = durability

    async def read(self, name: str) -> tuple[StoredSchedule | None, int]:
        """Return a schedule, or None, and the store's time (ms)."""
        page = await self._run(self._context.ledger.schedules(name))
        return (page.schedules[0] if page.schedules else None), page.now_ms

    async def existing(self, name: str) -> tuple[StoredSchedule, int]:
        stored, now_ms = await self.read(name)
        if stored is None:
            raise ScheduleNotFoundError(
                f"there is no schedule {name!r}; `rl schedules` lists the schedules of this namespace"
            )
        return stored, now_ms

    async def put(self, name: str, definition: bytes, timing: Timing, group: str = NATIVE) -> ScheduleAnswer:
        """Create a schedule, or edit one that was created at run time. A paused schedule stays paused."""
        stored, now_ms = await self.read(name)
        if stored is not None and stored.origin:
            raise ScheduleConflictError(
                f"schedule {name!r} was not changed: the code of {stored.origin} declares it; change it there, or "
                f"pause it and create a schedule with a different name"
            )
        if timing.after(now_ms) is None:
            raise ScheduleDefinitionError(
                f"schedule {name!r} was not written: {timing} has no time after now, by the store's clock; give a "
                f"later time, or push the task instead"
            )
        paused = stored is not None and stored.state is ScheduleState.PAUSED
        version = NEW if stored is None else stored.version
        wanted = DesiredSchedule(name, version, definition, timing, group=group)
        if paused:
            wanted = DesiredSchedule(name, version, definition, None, ScheduleState.PAUSED, group)
        return await self.apply(wanted, now_ms)

    async def declare(
        self, name: str, definition: bytes, timing: Timing, origin: str, now_ms: int, group: str = NATIVE
    ) -> ScheduleAnswer:
        """Create or update a schedule that code declares. If its only time has passed, store it as ended."""
        if timing.after(now_ms) is None:
            wanted = DesiredSchedule(name, DECLARE, definition, None, ScheduleState.ENDED, group, origin)
        else:
            wanted = DesiredSchedule(name, DECLARE, definition, timing, group=group, origin=origin)
        return await self.apply(wanted, now_ms)

    async def pause(self, name: str) -> ScheduleAnswer:
        return await self.switch(name, ScheduleState.PAUSED)

    async def resume(self, name: str) -> ScheduleAnswer:
        """Make a schedule active again. Occurrences that were due while it was paused do not run."""
        return await self.switch(name, ScheduleState.ACTIVE)

    async def switch(self, name: str, state: ScheduleState) -> ScheduleAnswer:
        """Pause, disable or resume a schedule."""
        stored, now_ms = await self.existing(name)
        timing = None
        if state is ScheduleState.ACTIVE:
            timing = read_definition(name, stored.definition).when()
            if timing.after(now_ms) is None:
                raise ScheduleDefinitionError(
                    f"schedule {name!r} was not resumed: {timing} has no time after now; edit its time, or remove it"
                )
        wanted = DesiredSchedule(name, stored.version, stored.definition, timing, state, stored.group, stored.origin)
        return await self.apply(wanted, now_ms)

    async def remove(self, name: str) -> bool:
        stored, _ = await self.existing(name)
        return bool(await self._run(self._context.ledger.unschedule(name, stored.version, self._durability)))

    async def apply(self, wanted: DesiredSchedule, now_ms: int) -> ScheduleAnswer:
        """Bring a schedule to the desired state, starting from the store's time `now_ms`."""
        for _ in range(MOST_ROUNDS):
            next_ms = None if wanted.timing is None else wanted.timing.after(now_ms)
            state = ScheduleState.ENDED if wanted.timing is not None and next_ms is None else wanted.state
            answer = await self._run(
                self._context.ledger.schedule(
                    wanted.name,
                    wanted.version,
                    wanted.definition,
                    next_ms,
                    state=state,
                    group=wanted.group,
                    origin=wanted.origin,
                    durability=self._durability,
                )
            )
            now_ms = answer.floor_ms
            if answer.verdict is ScheduleVerdict.DUE:
                await self._fire_old(wanted.name, answer)
            elif answer.verdict is not ScheduleVerdict.LATE:
                return _raise_if_refused(wanted.name, answer)
        raise ScheduleConflictError(
            f"schedule {wanted.name!r} was not written: it kept coming due while it was being written; try again"
        )

    async def _fire_old(self, name: str, answer: ScheduleAnswer) -> None:
        due = DueSchedule(name, answer.version, answer.next_ms or 0, answer.definition)
        self._context.fired(due, await self._run(self._context.call(due, answer.floor_ms)))


def _raise_if_refused(name: str, answer: ScheduleAnswer) -> ScheduleAnswer:
    match answer.verdict:
        case ScheduleVerdict.CONFLICT:
            raise ScheduleConflictError(
                f"schedule {name!r} was not written: it changed since it was read (now version {answer.version}); read "
                f"it again and repeat the change"
            )
        case ScheduleVerdict.MISSING:
            raise ScheduleNotFoundError(
                f"schedule {name!r} was not written: it was removed in the meantime; create it again"
            )
        case ScheduleVerdict.TAKEN:
            owner = f"the code of {answer.origin}" if answer.origin else "somebody at run time"
            raise ScheduleConflictError(
                f"schedule {name!r} was not declared: {owner} created it; rename one of the two, or remove the "
                f"existing one"
            )
    return answer
