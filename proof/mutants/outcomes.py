"""Seeded bugs in outcomes: what is counted, how often, and where."""

from __future__ import annotations

from functools import partial
from typing import Any

from proof.model.model import Model
from proof.model.outcomes import OUTCOME_FIELDS, Counting
from proof.model.state import Rec
from proof.mutants.mutant import Mutant, register

MUTANTS: list[Mutant] = []
_bug = partial(register, MUTANTS)


@_bug("a burial is not counted")
class BurialUncounted(Model):
    def count_end(self, rec: Rec, state: str, reason: str = "") -> None:
        if state != "dead":
            super().count_end(rec, state, reason)


@_bug("the burial of a task that killed its workers is not counted", "crash", "mixed")
class SweptBurialUncounted(Model):
    def finish_dead(self, task_id: str, rec: Rec, reason: str, lost: str | None = None) -> None:
        super().finish_dead(task_id, rec, reason, lost)
        if reason in {"max_resurrections_exceeded", "workers_kept_dying", "lost"}:
            self.counted.pop()


@_bug("an expired task counts as cancelled", "mixed", "crowd")
class ExpiryAsCancel(Model):
    def count_end(self, rec: Rec, state: str, reason: str = "") -> None:
        super().count_end(rec, state, reason and "cancelled")


@_bug("a retry counts as an end")
class RetryCounted(Model):
    def reschedule(self, task_id: str, rec: Rec, delay: int, *, keeps: bool) -> str:
        self.count_end(rec, "dead")
        return super().reschedule(task_id, rec, delay, keeps=keeps)


@_bug("a repeated commit is counted again")
class RepeatCounted(Model):
    def verdict(self, rec: Rec | None, move: str, fence: int, boot: str) -> str:
        said = super().verdict(rec, move, fence, boot)
        if move == "commit" and said == "repeat" and rec is not None:
            self.count_end(rec, "done")
        return said


@_bug("the refused commit of a zombie is counted", "zombie")
class ZombieCounted(Model):
    def verdict(self, rec: Rec | None, move: str, fence: int, boot: str) -> str:
        said = super().verdict(rec, move, fence, boot)
        if move == "commit" and said == "stale" and rec is not None:
            self.count_end(rec, "done")
        return said


@_bug("a repeated claim is counted again")
class ClaimCountedAgain(Model):
    def verdict_free(self, task_id: str, fence: int, boot: str) -> bool:
        same = super().verdict_free(task_id, fence, boot)
        if same:
            self.count_wait(self.tasks[task_id])
        return same


@_bug("the run time begins when the task was accepted")
class RunFromTheStart(Model):
    def count_end(self, rec: Rec, state: str, reason: str = "") -> None:
        what = "expired" if reason == "expired" else state
        self.count_outcome(rec, what, rec.at // 1000 if rec.state == "running" else None)


@_bug("the wait of a later attempt begins when the task was accepted")
class WaitFromTheStart(Model):
    def count_wait(self, rec: Rec) -> None:
        self.count_outcome(rec, "wait", rec.at // 1000)


@_bug("an end that no attempt led to has a run time", "operators", "mixed")
class RunWithoutAttempt(Model):
    def count_end(self, rec: Rec, state: str, reason: str = "") -> None:
        what = "expired" if reason == "expired" else state
        self.count_outcome(rec, what, rec.moved)


@_bug("the tasks of one call count as one", "crowd", "mixed")
class OneForTheBatch(Model):
    def write_outcomes(self) -> None:
        self.counted = list(dict.fromkeys(self.counted))
        super().write_outcomes()


@_bug("a full hash counts nothing more")
class FullHashStops(Model):
    def add_outcome(self, period: str, head: str, place: str, n: int) -> None:
        found = self.outcomes.get(period, {})
        if len(found) < OUTCOME_FIELDS or f"{head}\n{place}" in found:
            super().add_outcome(period, head, place, n)


@_bug("a hash grows without a bound")
class HashUnbounded(Model):
    def add_outcome(self, period: str, head: str, place: str, n: int) -> None:
        found = self.outcomes.setdefault(period, {})
        found[f"{head}\n{place}"] = found.get(f"{head}\n{place}", 0) + n


@_bug("hours are not counted")
class HoursUncounted(Model):
    def add_outcome(self, period: str, head: str, place: str, n: int) -> None:
        if period.startswith("m"):
            super().add_outcome(period, head, place, n)


@_bug("what a reply that was lost counted is counted when it is repeated", "mixed", "crash")
class CountedBySettling(Model):
    def settle(self, args: list[bytes], move: str, width: int) -> Any:
        for i in range(int(args[1])):
            rec = self.tasks.get(args[2 + width * i].decode())
            if move == "bury" and rec is not None and rec.more.get("settled") == f"bury:{int(args[3 + width * i])}":
                Counting.count_end(self, rec, "dead")
        return super().settle(args, move, width)
