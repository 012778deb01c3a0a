"""Seeded bugs in batches: ends that are not counted, callbacks too often or too early, batches that never end."""

# ruff: noqa: ARG002 - a bug need not use its arguments

from __future__ import annotations

from functools import partial
from typing import Any

from proof.model.batches import INF
from proof.model.model import Model
from proof.model.state import BatchRec, Rec, Sweep
from proof.mutants.mutant import Mutant, register

MUTANTS: list[Mutant] = []
_bug = partial(register, MUTANTS)
FLOWS = "workflows"


# --- every end counts ----------------------------------------------------------------------------------------------


@_bug("a burial by the sweep does not reach the batch", FLOWS)
class SweptUncounted(Model):
    def sweep_boot(self, name: str, sweep: Sweep) -> None:
        super().sweep_boot(name, sweep)
        self.parted = []


@_bug("an expired member does not reach the batch", FLOWS, "expired_member")
class ExpiredUncounted(Model):
    def expire(self, most: int) -> None:
        super().expire(most)
        self.parted = []


@_bug("a member that a claim finds expired does not reach the batch", FLOWS, "expired_member")
class ExpiredInClaimUncounted(Model):
    def _claim(self, args: list[bytes]) -> Any:
        answer = super()._claim(args)
        self.parted = []
        return answer


@_bug("a cancelled member does not reach the batch", FLOWS)
class CancelledUncounted(Model):
    def stop_task(self, task_id: str, rec: Rec) -> str:
        said = super().stop_task(task_id, rec)
        self.parted = []
        return said


@_bug("a member that is asked to cancel ends uncounted when it is put back", FLOWS)
class PutBackUncounted(Model):
    def requeue(self, task_id: str, rec: Rec, at_us: int) -> str:
        said = super().requeue(task_id, rec, at_us)
        self.parted = []
        return said


@_bug("the end of an inner batch does not reach the one around it", FLOWS)
class InnerEndUntold(Model):
    def end_batch(self, group: BatchRec) -> tuple[str, str]:
        super().end_batch(group)
        return "", ""


# --- links ---------------------------------------------------------------------------------------------------------


@_bug("a link that died is followed by the next", FLOWS)
class DeadLinkGoesOn(Model):
    def end_one(self, words: str, member: str, state: str, value: bytes, task: str) -> tuple[str, str]:
        next_link = words.split(" ")[2]
        return super().end_one(words, member, "done" if state == "dead" and next_link != "-" else state, value, task)


@_bug("a link is done and the next does not enter", FLOWS)
class NextLinkForgotten(Model):
    def go_on(self, group: BatchRec, place: str, next_link: str, value: bytes | None) -> bool:
        return group.plans.pop(next_link, None) is not None


@_bug("the next link is not given what the last one returned", FLOWS)
class InputForgotten(Model):
    def go_on(self, group: BatchRec, place: str, next_link: str, value: bytes | None) -> bool:
        return super().go_on(group, place, next_link, None)


@_bug("a cancelled batch goes on to its next links", FLOWS)
class StoppedGoesOn(Model):
    def is_stopped(self, group: BatchRec | None) -> bool:
        return False


@_bug("a batch inside a cancelled one goes on", FLOWS)
class InnerGoesOn(Model):
    def is_stopped(self, group: BatchRec | None) -> bool:
        return group is not None and group.stopped


@_bug("a member that ended and was reaped enters again", FLOWS)
class ReapedMemberEntersAgain(Model):
    def refuses(self, task_id: str, words: str) -> list[Any] | None:
        answer = super().refuses(task_id, words)
        return None if answer and answer[0] == b"ended" else answer


# --- callbacks -----------------------------------------------------------------------------------------------------


@_bug("then enters although a member failed", FLOWS)
class ThenDespiteFailure(Model):
    def fire(self, group: BatchRec, callback: str) -> None:
        super().fire(group, callback)
        if callback == "on_complete" and not self.is_stopped(group):
            super().fire(group, "then")


@_bug("then enters for a batch whose producer died", FLOWS, "abandoned_batch")
class AbandonedFiresThen(Model):
    def end_batch(self, group: BatchRec) -> tuple[str, str]:
        abandoned, group.abandoned = group.abandoned, False
        answer = super().end_batch(group)
        group.abandoned = abandoned
        return answer


@_bug("on_failure enters with every member that fails", "failed_twice")
class FailureTwice(Model):
    def fire(self, group: BatchRec, callback: str) -> None:
        plan = group.plans.get(callback)
        super().fire(group, callback)
        if plan is not None and callback == "on_failure":
            group.plans[callback], group.fired = plan, group.fired.replace("f", "")


@_bug("a cancelled batch calls on_failure", FLOWS, "cancelled_batch")
class StoppedFails(Model):
    def end_one(self, words: str, member: str, state: str, value: bytes, task: str) -> tuple[str, str]:
        answer = super().end_one(words, member, state, value, task)
        group = self.batches.get(words.split(" ")[0])
        if group is not None and state != "done":
            self.fire(group, "on_failure")
        return answer


@_bug("on_complete does not enter if a member failed", FLOWS)
class CompleteOnlyIfWhole(Model):
    def fire(self, group: BatchRec, callback: str) -> None:
        if callback != "on_complete" or group.count("done") == group.count("size"):
            super().fire(group, callback)


@_bug("a batch ends one member too early", FLOWS)
class EndsTooEarly(Model):
    def end_batch(self, group: BatchRec) -> tuple[str, str]:
        early = group.state == "sealed" and group.count("size") > 1
        if early:
            group.add("size", -1)
        answer = super().end_batch(group)
        if early:
            group.add("size")
        return answer


# --- replay --------------------------------------------------------------------------------------------------------


@_bug("a replayed member still counts as dead", FLOWS, "replayed_member")
class ReplayedCountsAsDead(Model):
    def rejoin(self, task_id: str, rec: Rec) -> None:
        """Bug: does not check."""


@_bug("an ended batch stays ended when a member is replayed", "replayed_member")
class ReplayedBatchStaysEnded(Model):
    def rejoin(self, task_id: str, rec: Rec) -> None:
        super().rejoin(task_id, rec)
        group = self.batches.get(rec.more["batch"].split(" ")[0])
        if group is not None and group.state == "sealed":
            group.state = "ended"


@_bug("the batch around is not told of a replay", "replayed_inner_member", FLOWS)
class OuterNotTold(Model):
    def rejoin(self, task_id: str, rec: Rec) -> None:
        parents = {group.id: group.parent for group in self.batches.values()}
        for group in self.batches.values():
            group.parent = ""
        super().rejoin(task_id, rec)
        for group in self.batches.values():
            group.parent = parents[group.id]
            if group.parent:
                self.batch_index.pop(group.id, None)


# --- opening and adding --------------------------------------------------------------------------------------------


@_bug("a sealed batch takes tasks from anybody", "closed_batch", FLOWS)
class SealedTakesAnything(Model):
    def takes(self, group: BatchRec, adder: list[str]) -> bool:
        return group.state != "ended" and not group.abandoned and not self.is_stopped(group)


@_bug("a sealed batch takes tasks from a zombie", "closed_batch")
class SealedTakesFromZombies(Model):
    def takes(self, group: BatchRec, adder: list[str]) -> bool:
        rec = self.tasks.get(adder[0])
        if rec is not None and adder[1] != "-" and group.state == "sealed":
            adder = [adder[0], str(rec.fence), rec.owner]
        return super().takes(group, adder)


@_bug("a running member may add to any batch", "closed_batch")
class MembersAddAnywhere(Model):
    def takes(self, group: BatchRec, adder: list[str]) -> bool:
        rec = self.tasks.get(adder[0])
        mine = rec is not None and rec.state == "running" and group.state == "sealed" and not self.is_stopped(group)
        return mine or super().takes(group, adder)


@_bug("a batch whose producer died stays open", FLOWS, "abandoned_batch")
class OpenForEver(Model):
    def tidy_batches(self, most: int) -> int:
        kept = {i: at for i, at in self.batch_index.items() if self.batches[i].state == "open"}
        for batch_id in kept:
            self.batch_index[batch_id] = INF
        looked = super().tidy_batches(most)
        self.batch_index |= kept
        return looked


@_bug("adding to a batch does not extend its lease", "slow_producer", FLOWS)
class LeaseNotRenewed(Model):
    def count_in(self, words: str, at: str) -> tuple[BatchRec | None, str]:
        index = dict(self.batch_index)
        answer = super().count_in(words, at)
        self.batch_index = index
        return answer


@_bug("a batch that is sealed last does not end", FLOWS)
class SealedNeverEnds(Model):
    def settle_batch(self, group: BatchRec) -> None:
        """Bug: does not check."""


@_bug("a sealed batch may be given up later", "closed_batch")
class SealedGivenUp(Model):
    def _seal_batch(self, args: list[bytes]) -> Any:
        group = self.batches.get(args[0].decode())
        if group is not None and group.state == "sealed" and args[1] == b"1":
            group.state = "open"
        return super()._seal_batch(args)


# --- results and removal -------------------------------------------------------------------------------------------


@_bug("a group forgets its results", FLOWS)
class ResultsForgotten(Model):
    def collect(self, group: BatchRec, place: str, value: bytes) -> None:
        """Bug: collects nothing."""


@_bug("a batch that only counts keeps results", FLOWS)
class CountingKeepsResults(Model):
    def collect(self, group: BatchRec, place: str, value: bytes) -> None:
        group.results[place] = value


@_bug("a batch is removed before its callback has read the results", "waited_for")
class RemovedTooEarly(Model):
    def is_waited_for(self, group: BatchRec) -> bool:
        return False


@_bug("inner batches are left behind", FLOWS)
class InnerLeftBehind(Model):
    def innermost(self, group: BatchRec) -> tuple[BatchRec, BatchRec]:
        return group, group


@_bug("a batch with a dead member is removed like any other", "replayed_late")
class DeadKeptTooShort(Model):
    def end_batch(self, group: BatchRec) -> tuple[str, str]:
        dead = group.counts.pop("dead", None)
        complete = sum(map(group.count, ("done", "cancelled"))) + (dead or 0) >= group.count("size")
        if dead and complete and group.state == "sealed" and not group.parent:
            group.counts["cancelled"] = group.count("cancelled") + dead
            answer = super().end_batch(group)
            group.counts["cancelled"] -= dead
        else:
            if dead is not None:
                group.counts["dead"] = dead
            return super().end_batch(group)
        group.counts["dead"] = dead
        return answer
