"""Seeded bugs in claims, sweeps and admission."""

# ruff: noqa: ARG002 - a bug is often an unused argument

from __future__ import annotations

from functools import partial
from typing import Any

from proof.model.model import Model
from proof.model.state import Boot, Item, Rec, Sweep
from proof.mutants.mutant import Mutant, register

MUTANTS: list[Mutant] = []
_bug = partial(register, MUTANTS)

# --- claims --------------------------------------------------------------------------------------------------------


@_bug("a re-sent claim takes a second set", "network")
class ClaimIgnoresSeq(Model):
    def _claim(self, args: list[bytes]) -> Any:
        boot = self.boots.get(args[0].decode())
        if boot is not None:
            boot.lanes.clear()
        return super()._claim(args)


@_bug("a re-sent claim hands over what was settled since", "network")
class ClaimRepeatsSettled(Model):
    def verdict_free(self, task_id: str, fence: int, boot: str) -> bool:
        return task_id in self.tasks


@_bug("a late claim is served though a newer one of its lane was", "network")
class LateClaimServed(Model):
    def _claim(self, args: list[bytes]) -> Any:
        boot, lane = self.boots.get(args[0].decode()), args[1].decode()
        if boot is not None and boot.lanes.get(lane, (0, []))[0] > int(args[2]):
            del boot.lanes[lane]
        return super()._claim(args)


@_bug("tasks past their expiry are handed over", "mixed", "crowd")
class ExpiresIgnored(Model):
    def drain(self, boot: str, queue: str, *claim: Any) -> tuple[bool, int]:
        for task_id in self.ready.get(queue, {}):
            if task_id in self.tasks:
                self.tasks[task_id].expires = None
        return super().drain(boot, queue, *claim)


@_bug("what has begun is cancelled as expired when it comes round again", "mixed", "crowd")
class BegunExpires(Model):
    def expired(self, rec: Rec) -> bool:
        return rec.expires is not None and rec.expires <= self.now


@_bug("in a queue that nobody claims from, nothing expires", "mixed", "operators")
class UnservedNeverExpires(Model):
    def expire(self, most: int) -> None:
        """Bug: leaves expired tasks to claims."""


@_bug("the sweep cancels what has begun", "mixed", "crowd")
class SweepExpiresTheBegun(Model):
    def waits_no_more(self, task_id: str, rec: Rec) -> None:
        if rec.state != "queued":
            super().waits_no_more(task_id, rec)


@_bug("what expired stays in its queue", "mixed", "operators")
class ExpiredStaysQueued(Model):
    def expire(self, most: int) -> None:
        places = {queue: dict(index) for queue, index in self.ready.items()}
        super().expire(most)
        self.ready = places


@_bug("low priority goes first", "crowd")
class PriorityReversed(Model):
    def line_up(self, task_id: str, rec: Rec, at_us: int) -> None:
        super().line_up(task_id, rec, at_us + 2 * rec.priority * 60_000_000)


@_bug("the last of a queue is handed over first", "crowd")
class LastInFirstOut(Model):
    def drain(self, boot: str, queue: str, *claim: Any) -> tuple[bool, int]:
        index = self.ready.get(queue, {})
        kept = dict(index)
        for task_id in index:
            index[task_id] = -index[task_id]
        answer = super().drain(boot, queue, *claim)
        for task_id in self.ready.get(queue, {}):
            self.ready[queue][task_id] = kept[task_id]
        return answer


@_bug("revived tasks queue up behind the others", "crash")
class RevivedGoLast(Model):
    def requeue(self, task_id: str, rec: Rec, at_us: int) -> str:
        return super().requeue(task_id, rec, abs(at_us))


@_bug("a paused queue is claimed from", "operators")
class PauseIgnored(Model):
    def _claim(self, args: list[bytes]) -> Any:
        pauses, self.pauses = self.pauses, {}
        answer = super()._claim(args)
        self.pauses = pauses
        return answer


@_bug("the fence is a plain counter: after a rollback it repeats", "failover")
class FenceCounts(Model):
    def start(self, boot: str, task_id: str, rec: Rec) -> None:
        fence = rec.fence + 1
        super().start(boot, task_id, rec)
        rec.fence = fence


@_bug("the fence is TIME alone: where TIME went back it shrinks", "clock")
class FenceIsTime(Model):
    def start(self, boot: str, task_id: str, rec: Rec) -> None:
        super().start(boot, task_id, rec)
        rec.fence = self.time_us


@_bug("a claimed task stays in its queue", "calm")
class ClaimLeavesReady(Model):
    def start(self, boot: str, task_id: str, rec: Rec) -> None:
        super().start(boot, task_id, rec)
        self.line_up(task_id, rec, rec.at)


# --- sweeps --------------------------------------------------------------------------------------------------------


@_bug("promoted ids stay in the schedule", "calm")
class PromoteLeavesDue(Model):
    def _promote(self, args: list[bytes]) -> Any:
        due = dict(self.due)
        answer = super()._promote(args)
        self.due = due
        return answer


@_bug("tasks are promoted before they are due", "calm")
class PromoteEarly(Model):
    def _promote(self, args: list[bytes]) -> Any:
        self.due = {task_id: min(at, self.now) for task_id, at in self.due.items()}
        return super()._promote(args)


@_bug("the reaper takes what still lives", "mixed", "calm")
class ReapsTheLiving(Model):
    def _reap(self, args: list[bytes]) -> Any:
        for task_id in list(self.due)[:1]:
            del self.tasks[task_id], self.due[task_id]
        return super()._reap(args)


@_bug("the reaper comes early", "mixed")
class ReapsEarly(Model):
    def _reap(self, args: list[bytes]) -> Any:
        self.time_us += 3_600_000_000
        answer = super()._reap(args)
        self.time_us -= 3_600_000_000
        return answer


@_bug("every death in a shared crash counts against everyone", "crash", "poison")
class DeathsCountForAll(Model):
    def resurrect(self, task_id: str, rec: Rec, alone: bool, cause: str) -> str:
        return super().resurrect(task_id, rec, True, cause)


@_bug("no death ever counts, not even in a process of its own", "poison")
class NobodyIsConvicted(Model):
    def resurrect(self, task_id: str, rec: Rec, alone: bool, cause: str) -> str:
        return super().resurrect(task_id, rec, False, cause)


@_bug("a suspect is convicted by the death of its whole worker", "poison", "hosts_die")
class SuspectConvictedByItsWorker(Model):
    def rescue(self, name: str, boot: Boot, task_id: str, sweep: Sweep) -> None:
        ran, rec = boot.ran, self.tasks.get(task_id)
        if rec is not None and "a" in rec.flags:
            boot.ran = 1
        super().rescue(name, boot, task_id, sweep)
        boot.ran = ran


@_bug("scares have no limit, so a task that takes its worker along goes round forever", "poison", "hosts_die")
class ScaresUnlimited(Model):
    def most_scares(self, most_deaths: int) -> int:
        return 10**9


@_bug("a failure of its own does not wipe out a task's scares", "hosts_die", "crash")
class ScaresForEver(Model):
    def _retry(self, args: list[bytes]) -> Any:
        scares = {i: rec.more["scares"] for i, rec in self.tasks.items() if "scares" in rec.more}
        answer = super()._retry(args)
        for task_id, n in scares.items():
            self.tasks[task_id].more["scares"] = n
        return answer


@_bug("whatever hands a task back wipes out its scares", "hosts_die", "crash")
class EveryReturnForgives(Model):
    def _retry(self, args: list[bytes]) -> Any:
        answer = super()._retry(args)
        for said, run in zip(answer, range(2, len(args), 5), strict=True):
            if said[0] == b"ok":
                self.tasks[args[run].decode()].more.pop("scares", None)
        return answer


@_bug("one resurrection more than allowed", "poison")
class OneLifeMore(Model):
    def resurrect(self, task_id: str, rec: Rec, alone: bool, cause: str) -> str:
        most = rec.max_resurrections
        rec.max_resurrections = (5 if most is None else most) + 1
        state = super().resurrect(task_id, rec, alone, cause)
        rec.max_resurrections = most
        return state


@_bug("how many a dead boot ran is counted again in every sweep", "storm")
class RanCountedAgain(Model):
    def sweep_boot(self, name: str, sweep: Sweep) -> None:
        self.boots[name].ran = len(self.owned.get(name, {}))
        kept = self.boots[name].lease_end
        self.boots[name].lease_end = kept or 1
        super().sweep_boot(name, sweep)


@_bug("a full lane ends the sweep: other queues starve", "storm")
class BrakeStopsTheSweep(Model):
    def rescue(self, name: str, boot: Boot, task_id: str, sweep: Sweep) -> None:
        if not sweep.deferred:
            super().rescue(name, boot, task_id, sweep)


@_bug("there is no brake", "storm")
class NoBrake(Model):
    def revived_in(self, queue: str) -> int:
        return 0


@_bug("a supervisor's word about one boot sweeps them all", "crash")
class NamedSweepsAll(Model):
    def _revive(self, args: list[bytes]) -> Any:
        if args[3]:
            for name in sorted(self.boots):
                super()._revive([*args[:3], name.encode(), args[4]])
        return super()._revive(args)


# --- entering ------------------------------------------------------------------------------------------------------


@_bug("repeats are charged to the limit", "burst")
class RepeatsAreCharged(Model):
    def _submit(self, args: list[bytes]) -> Any:
        answer = super()._submit(args)
        limits = [args[5 + 4 * i : 9 + 4 * i] for i in range(int(args[4]))]
        if answer[0] == b"ok" and not any(isinstance(item, bytes) for item in answer[2:]):
            for name, interval, _, _ in limits:
                self.rates[name.decode()] = max(self.rates.get(name.decode(), 0), self.time_us) + int(interval)
        return answer


@_bug("the burst of a limit is twice what was asked", "burst")
class DoubleBurst(Model):
    def weigh(self, items: list[Item], max_depth: int, max_bytes: int, extra: int, limits: list[list[bytes]]) -> Any:
        wide = [
            [name, interval, str(2 * int(tolerance)).encode(), weight] for name, interval, tolerance, weight in limits
        ]
        return super().weigh(items, max_depth, max_bytes, extra, wide)


@_bug("an id that is here is written again", "network")
class SubmitOverwrites(Model):
    def look(self, item: Item) -> list[Any] | None:
        rec = self.tasks.get(item.id)
        if rec is not None and rec.state == "queued":
            return None
        return super().look(item)


@_bug("an id with a tombstone enters again", "tombstone")
class TombstoneIgnored(Model):
    def look(self, item: Item) -> list[Any] | None:
        self.tombs.pop(item.id, None)
        return super().look(item)


@_bug("two tasks live under one key", "keys")
class KeyNotChecked(Model):
    def holder(self, key: str) -> str | None:
        return None


@_bug("the submission that replaces another leaves it in its queue", "keys")
class ReplacedStays(Model):
    def enter(self, item: Item, nth: int, charged: bool) -> bytes:
        if item.key and self.holder(item.key):
            self.idem.pop(item.key)
        return super().enter(item, nth, charged)


@_bug("a full store refuses commits, so nobody can make room", "full")
class FullRefusesCommit(Model):
    def _commit(self, args: list[bytes]) -> Any:
        self.need_memory()
        return super()._commit(args)


@_bug("a full store refuses steps, so what runs cannot end", "full")
class FullRefusesStep(Model):
    def _step(self, args: list[bytes]) -> Any:
        self.need_memory()
        return super()._step(args)


@_bug("a full store refuses checkpoints", "full")
class FullRefusesCheckpoint(Model):
    def _checkpoint(self, args: list[bytes]) -> Any:
        self.need_memory()
        return super()._checkpoint(args)


@_bug("a queue in use is forgotten", "mixed", "calm")
class ForgetsBusyQueues(Model):
    def tidy(self, queue: str, unused: int) -> None:
        waiting, self.ready = self.ready, {}
        super().tidy(queue, unused)
        self.ready = waiting


@_bug("a queue is forgotten and its bell is not, so the next task does not bring it back", "mixed", "calm")
class ForgetsQueueKeepsBell(Model):
    def tidy(self, queue: str, unused: int) -> None:
        rung = set(self.bells)
        super().tidy(queue, unused)
        self.bells = rung
