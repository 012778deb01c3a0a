"""Seeded bugs in the repair of damaged keys: damage that stays, and repairs that harm what is sound."""

# ruff: noqa: ARG002 - a bug is often an unused argument

from __future__ import annotations

from functools import partial

from proof.model.model import Model, Rec
from proof.model.state import BatchRec
from proof.mutants.mutant import Mutant, register
from relier.ledger.defaults import RESULT_TTL_MS

MUTANTS: list[Mutant] = []
_bug = partial(register, MUTANTS)


@_bug("a record without its place in an index stays lost", "damage")
class LostStaysLost(Model):
    def bring_home(self, task_id: str, rec: Rec) -> None:
        return


@_bug("a queued task comes back before all others", "damage")
class RepairedFirst(Model):
    def bring_home(self, task_id: str, rec: Rec) -> None:
        super().bring_home(task_id, rec)
        if rec.state == "queued" and task_id in self.ready.get(rec.queue, {}):
            self.ready[rec.queue][task_id] = 0


@_bug("a limited task is put into its queue, past its lane", "damage")
class RepairPassesLimits(Model):
    def bring_home(self, task_id: str, rec: Rec) -> None:
        if rec.state == "queued":
            self.line_up(task_id, rec, rec.at)
            self.ring(rec.queue)
            self.fixed("queued")
        else:
            super().bring_home(task_id, rec)


@_bug("a scheduled task whose time is lost waits for ever", "damage")
class RepairedNeverDue(Model):
    def bring_home(self, task_id: str, rec: Rec) -> None:
        super().bring_home(task_id, rec)
        if rec.state == "scheduled":
            self.due[task_id] = 9_999_999_999_999


@_bug("a running task that its worker's list lost is queued again", "damage")
class RepairTakesRunningTasks(Model):
    def bring_home(self, task_id: str, rec: Rec) -> None:
        if rec.state == "running":
            self.leave(task_id, rec)
            self.requeue(task_id, rec, rec.at)
            self.fixed("running")
        else:
            super().bring_home(task_id, rec)


@_bug("an ended task is kept as a result, also when it is dead", "damage")
class DeadKeptBriefly(Model):
    def end_of_life(self, rec: Rec) -> float:
        return self.now + (RESULT_TTL_MS if rec.result_ttl is None else rec.result_ttl)


@_bug("an entry without a record stays", "damage")
class StraysStay(Model):
    def mend_entry(self, kind: str, of: str, task_id: str) -> None:
        if task_id in self.tasks:
            super().mend_entry(kind, of, task_id)


@_bug("a second place in an index stays", "damage")
class SecondPlaceStays(Model):
    def mend_entry(self, kind: str, of: str, task_id: str) -> None:
        if task_id not in self.tasks:
            super().mend_entry(kind, of, task_id)


@_bug("an entry of a task that stands elsewhere ends the task", "damage")
class RepairRemovesRecords(Model):
    def mend_entry(self, kind: str, of: str, task_id: str) -> None:
        before = self.repaired.get("entry", 0)
        super().mend_entry(kind, of, task_id)
        if self.repaired.get("entry", 0) > before:
            self.tasks.pop(task_id, None)


@_bug("tasks that wait in a lane count as misplaced", "damage")
class LanesAreNoHome(Model):
    def home_of(self, task_id: str, rec: Rec) -> tuple[str, str]:
        kind, of = super().home_of(task_id, rec)
        return ("ready", rec.queue) if kind == "lane" else (kind, of)


@_bug("a worker that is registered is declared lost with its task", "damage")
class RepairDeclaresAnybodyLost(Model):
    def mend_owner(self, boot: str) -> None:
        if boot in self.boots and self.boots[boot].lease_end:
            self.boots[boot].lease_end = 0
            self.fixed("unowned")


@_bug("a run without its slot stays without one", "damage")
class SlotsStayLost(Model):
    def mend_slots(self, task_id: str, rec: Rec) -> None:
        return


@_bug("a slot without a run stays taken", "damage")
class SlotsStayTaken(Model):
    def mend_slot(self, key: str, task_id: str) -> None:
        return


@_bug("every slot is freed", "damage")
class RepairFreesSlots(Model):
    def mend_slot(self, key: str, task_id: str) -> None:
        if task_id in self.slots.get(key, {}):
            self.drop(self.slots, key, task_id)
            self.wake(key)
            self.fixed("slot")


@_bug("a lane that no list names stays forgotten", "damage")
class LaneStaysForgotten(Model):
    def mend_lane(self, lane: str) -> None:
        if lane in self.lanes:
            super().mend_lane(lane)


@_bug("every sleeping lane is woken", "damage")
class RepairWakesLanes(Model):
    def mend_asleep(self, lane: str, key: str, queue: str) -> None:
        self.sleep_no_more(lane, key)
        self.awake(lane)


@_bug("a lane that sleeps in the wrong order stays there", "damage")
class LaneSleepsAnywhere(Model):
    def mend_asleep(self, lane: str, key: str, queue: str) -> None:
        return


@_bug("a limit lists a lane that does not sleep on it", "damage")
class SleepersStay(Model):
    def mend_sleeper(self, of: str, lane: str) -> None:
        return


@_bug("lanes wait for a rate behind nobody", "damage")
class PacersStay(Model):
    def mend_pacer(self, field: str) -> None:
        return


@_bug("the count of a batch stays wrong", "damage")
class BatchStaysMiscounted(Model):
    def mend_batch(self, batch_id: str) -> None:
        if batch_id in self.batches:
            self.mend_place(self.batches[batch_id])


@_bug("an ended batch without a place in the index is kept for ever", "damage")
class EndedBatchKept(Model):
    def mend_place(self, group: BatchRec) -> None:
        before = group.id in self.batch_index
        super().mend_place(group)
        if not before and group.id in self.batch_index:
            self.batch_index[group.id] = float("inf")


@_bug("inner batches are listed as outer ones", "damage")
class InnerBatchListed(Model):
    def mend_place(self, group: BatchRec) -> None:
        if group.id not in self.batch_index:
            self.batch_index[group.id] = float("inf")
            self.fixed("batch")


@_bug("live members of a batch are ended", "damage")
class RepairEndsMembers(Model):
    def mend_member(self, of: str, member: str) -> None:
        rec = self.tasks.get(member)
        if rec is not None and of in self.batches:
            self.end_member(rec.more.get("batch", f"{of} 0 - - -"), member, "dead", member.encode(), member)


@_bug("an index of batches keeps one that does not exist", "damage")
class StrayBatchStays(Model):
    def mend_listed_batch(self, batch_id: str) -> None:
        return


@_bug("a bell stays too long", "damage")
class BellStaysLong(Model):
    def mend_bell(self, queue: str) -> None:
        return


@_bug("a queue that holds tasks stays unknown", "damage")
class QueueStaysUnknown(Model):
    def mend_queue(self, queue: str) -> None:
        return

    def mend_bell(self, queue: str) -> None:
        if queue in self.queues:
            super().mend_bell(queue)


@_bug("keys that belong to nothing stay", "damage")
class LeftoversStay(Model):
    def mend_leftover(self, kind: str, of: str) -> None:
        return


@_bug("locks that are held are removed", "damage")
class RepairRemovesLocks(Model):
    def mend_leftover(self, kind: str, of: str) -> None:
        super().mend_leftover(kind, of)
        if kind == "lock":
            self.holds.pop(of, None)


@_bug("a live task keeps an expiry that somebody set", "damage")
class LiveTaskExpires(Model):
    def mend_task(self, task_id: str) -> None:
        rec = self.tasks.get(task_id)
        kept = rec.expiry if rec is not None else False
        super().mend_task(task_id)
        if rec is not None:
            rec.expiry = kept
