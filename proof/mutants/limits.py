"""Seeded bugs in limits at run time: slots, lanes, rates, and the numbers that operators set."""

# ruff: noqa: ARG002 - a bug is often an unused argument

from __future__ import annotations

from functools import partial
from typing import Any

from proof.model.lanes import Limited
from proof.model.model import Model
from proof.model.state import Rec
from proof.mutants.mutant import Mutant, register

MUTANTS: list[Mutant] = []
_bug = partial(register, MUTANTS)

# --- slots ---------------------------------------------------------------------------------------------------------


@_bug("a full limit lets one more start", "limits")
class OneTooMany(Model):
    def is_full(self, limit: Limited) -> bool:
        return 0 < limit.most < len(self.slots.get(limit.key, {}))


@_bug("only the first limit of a task counts", "limits")
class FirstLimitOnly(Model):
    def first_full(self, limits: list[Limited]) -> str | None:
        return super().first_full(limits[:1])


@_bug("a revived task keeps its slot", "limits")
class ReviveKeepsSlot(Model):
    def resurrect(self, task_id: str, rec: Rec, alone: bool, cause: str) -> str:
        for limit in self.limits_of(rec):
            self.slots.setdefault(limit.key, {})[task_id] = rec.fence
        return super().resurrect(task_id, rec, alone, cause)


@_bug("a task that leaves its owner keeps its slots", "limits")
class SlotsLeak(Model):
    def free_slots(self, task_id: str, rec: Rec) -> None:
        """Bug: frees no slot."""


@_bug("a freed slot wakes nobody", "limits")
class NobodyWakes(Model):
    def wake(self, key: str) -> None:
        """Bug: wakes no lane."""


@_bug("a freed slot wakes the youngest lane of a queue", "limits_oldest_first")
class YoungestWakes(Model):
    def wake_one(self, key: str, queue: str) -> None:
        asleep = self.sleepers.get((key, queue), {})
        lane = max(asleep, key=lambda name: (asleep[name], name), default=None)
        if lane is not None:
            self.sleep_no_more(lane, key)
            self.awake(lane)


@_bug("a lane that sleeps is listed by its youngest task", "limits")
class ListedByItsYoungest(Model):
    def sleep(self, lane: str, key: str) -> None:
        super().sleep(lane, key)
        self.sleepers[key, lane.partition(" ")[2]][lane] = max(self.lane_waits[lane].values())


@_bug("a slot is taken under another fence", "limits")
class SlotOfAnotherFence(Model):
    def admit(self, task_id: str, rec: Rec, order: int, fence: int) -> bool:
        return super().admit(task_id, rec, order, fence - 1)


# --- lanes ---------------------------------------------------------------------------------------------------------


@_bug("a head that is cancelled leaves its lane without one", "limits")
class HeadlessLane(Model):
    def leave_lane(self, task_id: str, rec: Rec) -> None:
        if "l" in rec.flags and self.lanes.get(self.lane_of(rec)) == f"+{task_id}":
            return
        super().leave_lane(task_id, rec)


@_bug("a cancelled task stays in its lane", "limits")
class CancelledStaysInLane(Model):
    def wait_no_more(self, lane: str, task_id: str) -> bool:
        if self.lanes.get(lane, "")[:1] == "-" and task_id in self.tasks and self.first_in(lane) != task_id:
            return False
        return super().wait_no_more(lane, task_id)


@_bug("a started head leaves its lane without one", "limits")
class NoSuccessor(Model):
    def succeed(self, lane: str) -> bool:
        return False


@_bug("a head that must wait wakes nobody in its place", "limits", "limits_pass_on")
class NothingPassedOn(Model):
    def pass_on(self, limits: list[Limited], queue: str, but: str | None = None) -> None:
        """Bug: passes nothing on."""


@_bug("a revived task stands behind the head of its lane", "limits")
class NeverOvertakes(Model):
    def enter_lane(self, task_id: str, rec: Rec, order: int) -> None:
        lane = self.lane_of(rec)
        if self.lanes.get(lane, "")[:1] == "+" and self.lanes[lane] != f"+{task_id}":
            self.wait_in(lane, order, task_id)
        else:
            super().enter_lane(task_id, rec, order)


@_bug("the last of a lane leads", "limits")
class LastLeads(Model):
    def first_in(self, lane: str) -> str | None:
        waits = self.lane_waits.get(lane, {})
        return max(waits, key=lambda i: (waits[i], i), default=None)


@_bug("limited tasks are not counted at their end", "limits")
class NotCountedOut(Model):
    def count_limited(self, rec: Rec, by: int) -> None:
        if by > 0:
            super().count_limited(rec, by)


@_bug("a replayed task is not counted again", "limits")
class ReplayNotCounted(Model):
    def _replay(self, args: list[bytes]) -> Any:
        rec = self.tasks.get(args[0].decode())
        answer = super()._replay(args)
        if answer[0] == b"ok" and rec is not None:
            self.count_limited(rec, -1)
        return answer


@_bug("a limited task goes past its lane", "limits")
class PastItsLane(Model):
    def enter_lane(self, task_id: str, rec: Rec, order: int) -> None:
        self.ready.setdefault(rec.queue, {})[task_id] = order
        self.ring(rec.queue)


# --- rates ---------------------------------------------------------------------------------------------------------


@_bug("a start is not charged to its rate", "limits")
class StartsAreFree(Model):
    def count_start(self, limits: list[Limited]) -> None:
        """Bug: charges nothing."""


@_bug("a rate lets one more start than its burst", "limits")
class BurstTooLong(Model):
    def paced_until(self, limits: list[Limited]) -> tuple[int | None, str | None]:
        wider = [
            Limited(limit.name, limit.key, limit.most, limit.interval, limit.tolerance + limit.interval)
            for limit in limits
        ]
        return super().paced_until(wider)


@_bug("of two rates only the first makes a task wait", "limits")
class FirstRateOnly(Model):
    def paced_until(self, limits: list[Limited]) -> tuple[int | None, str | None]:
        return super().paced_until([limit for limit in limits if limit.interval][:1])


@_bug("a task waits for a rate twice as long as it must", "limits")
class WaitsTooLong(Model):
    def paced_until(self, limits: list[Limited]) -> tuple[int | None, str | None]:
        due, key = super().paced_until(limits)
        return (due if due is None else due + 500), key


@_bug("the place of a head that waited for a rate is never free again", "limits")
class PacerStays(Model):
    def pace_no_more(self, task_id: str, limits: list[Limited], queue: str) -> None:
        """Bug: the task stays the one that waits for the rate."""


# --- operators and repair ------------------------------------------------------------------------------------------


@_bug("numbers set for a name win over those of a key", "limits", "limits_set")
class NameBeforeKey(Model):
    def limits_of(self, rec: Rec) -> list[Limited]:
        limits = super().limits_of(rec)
        for i, line in enumerate(rec.more.get("limits", "").splitlines()):
            name, key = line.split()[:2]
            if name in self.limits and key in self.limits:
                limits[i] = Limited(name, key, *self.limits[name][:3])
        return limits


@_bug("what an operator sets is ignored", "limits", "limits_set")
class SetIgnored(Model):
    def limits_of(self, rec: Rec) -> list[Limited]:
        chosen, self.limits = self.limits, {}
        try:
            return super().limits_of(rec)
        finally:
            self.limits = chosen


@_bug("a raised limit wakes nobody", "limits", "limits_set")
class RaisedWakesNobody(Model):
    def _limit(self, args: list[bytes]) -> Any:
        asleep = self.lanes
        self.lanes = {lane: state for lane, state in asleep.items() if state[0] == "+"}
        answer = super()._limit(args)
        self.lanes = asleep
        return answer


@_bug("a rate that was lifted still makes its head wait", "limits_set")
class LiftedRateWaits(Model):
    def hasten(self, head: str) -> None:
        """Bug: does not start waiting tasks earlier."""


@_bug("the limit of an older version is set", "limits", "limits_set")
class AnyVersionSets(Model):
    def _limit(self, args: list[bytes]) -> Any:
        stored = self.limits.get(args[0].decode())
        return super()._limit([args[0], str(stored[3] if stored else 0).encode(), *args[2:]])
