"""Seeded bugs in settling, idempotency keys, checkpoints and steps, and operators' moves."""

# ruff: noqa: ARG002 - a bug is often an unused argument

from __future__ import annotations

from functools import partial
from typing import Any

from proof.model.model import Model
from proof.model.state import ITEM, Item, Rec
from proof.mutants.mutant import Mutant, register

MUTANTS: list[Mutant] = []
_bug = partial(register, MUTANTS)

# --- who may settle ------------------------------------------------------------------------------------------------


@_bug("commit does not look at the fence", "own_zombie")
class FenceNotChecked(Model):
    def verdict(self, rec: Rec | None, move: str, fence: int, boot: str) -> str:
        if move == "commit" and rec is not None and rec.state == "running" and rec.owner == boot:
            return "ok"
        return super().verdict(rec, move, fence, boot)


@_bug("an older fence will do", "network")
class FenceAtMost(Model):
    def verdict(self, rec: Rec | None, move: str, fence: int, boot: str) -> str:
        if rec is not None and rec.state == "running" and rec.owner == boot and fence <= rec.fence:
            return "ok"
        return super().verdict(rec, move, fence, boot)


@_bug("fences are compared to 14 digits: f and f + 1 are alike", "own_zombie")
class FenceRounded(Model):
    def verdict(self, rec: Rec | None, move: str, fence: int, boot: str) -> str:
        if rec is not None and rec.state == "running" and rec.owner == boot and fence // 100 == rec.fence // 100:
            return "ok"
        return super().verdict(rec, move, fence, boot)


@_bug("settling does not look at the owner", "same_fence_twice")
class OwnerNotChecked(Model):
    def verdict(self, rec: Rec | None, move: str, fence: int, boot: str) -> str:
        if rec is not None and rec.state == "running" and rec.fence == fence:
            return "ok"
        return super().verdict(rec, move, fence, boot)


@_bug("a repeated commit is told stale", "network")
class RepeatIsStale(Model):
    def verdict(self, rec: Rec | None, move: str, fence: int, boot: str) -> str:
        said = super().verdict(rec, move, fence, boot)
        return "stale" if move == "commit" and said == "repeat" else said


@_bug("a repeated retry is told stale", "network")
class RetryNotRemembered(Model):
    def note(self, rec: Rec, **fields: object) -> None:
        fields.pop("settled", None)
        super().note(rec, **fields)


@_bug("a committed task stays in its owner's set", "calm")
class CommitKeepsOwned(Model):
    def _commit(self, args: list[bytes]) -> Any:
        owned = {boot: dict(ids) for boot, ids in self.owned.items()}
        answer = super()._commit(args)
        self.owned = owned
        return answer


@_bug("a done task can be committed again", "network", "zombie")
class DoneDoesNotAbsorb(Model):
    def verdict(self, rec: Rec | None, move: str, fence: int, boot: str) -> str:
        if move == "commit" and rec is not None and rec.state == "done":
            return "ok"
        return super().verdict(rec, move, fence, boot)


# --- counting ------------------------------------------------------------------------------------------------------


@_bug("handing back burns an attempt", "calm")
class ReleaseBurns(Model):
    def _release(self, args: list[bytes]) -> Any:
        for run in range(int(args[1])):
            rec = self.tasks.get(args[2 + 2 * run].decode())
            if rec is not None and rec.state == "running" and rec.fence == int(args[3 + 2 * run]):
                rec.attempt += 1
        return super()._release(args)


@_bug("a put-back burns an attempt", "calm")
class PutbackBurns(Model):
    def _retry(self, args: list[bytes]) -> Any:
        return super()._retry([b"failure" if arg in {b"putback", b"locked"} else arg for arg in args])


@_bug("a retried task keeps its owner", "calm")
class RetryKeepsOwner(Model):
    def reschedule(self, task_id: str, rec: Rec, delay: int, *, keeps: bool) -> str:
        owner = rec.owner
        state = super().reschedule(task_id, rec, delay, keeps=keeps)
        rec.owner = owner
        return state


@_bug("a delayed retry runs at once", "calm")
class RetryAtOnce(Model):
    def reschedule(self, task_id: str, rec: Rec, delay: int, *, keeps: bool) -> str:
        return super().reschedule(task_id, rec, 0, keeps=keeps)


@_bug("what found no room re-enters behind all that came meanwhile", "mixed", "crowd")
class NoRoomLosesItsPlace(Model):
    def reschedule(self, task_id: str, rec: Rec, delay: int, *, keeps: bool) -> str:
        return super().reschedule(task_id, rec, delay, keeps=False)


@_bug("every retry returns before all that came meanwhile", "mixed", "crowd")
class EveryRetryKeepsItsPlace(Model):
    def reschedule(self, task_id: str, rec: Rec, delay: int, *, keeps: bool) -> str:
        return super().reschedule(task_id, rec, delay, keeps=True)


@_bug("two limits of put-backs share one time", "mixed", "crowd")
class PutBacksShareTheirTime(Model):
    def put_back(self, rec: Rec, kind: str) -> None:
        super().put_back(rec, "putback" if kind == "locked" else kind)


@_bug("bytes held are not given back", "full")
class BytesLeak(Model):
    def settle_end(self, task_id: str, rec: Rec, eol: float) -> None:
        held, rec.held = rec.held, None
        super().settle_end(task_id, rec, eol)
        rec.held = held


@_bug("a cancelled task is not counted", "operators")
class CancelledNotCounted(Model):
    def count(self, field_name: str, n: int = 1) -> None:
        if field_name != "cancelled":
            super().count(field_name, n)


@_bug("dead without a reason", "calm")
class DeadWithoutReason(Model):
    def finish_dead(self, task_id: str, rec: Rec, reason: str, lost: str | None = None) -> None:
        super().finish_dead(task_id, rec, "", lost)


@_bug("what is held for a person expires", "keys", "crash")
class HoldExpires(Model):
    def finish_dead(self, task_id: str, rec: Rec, reason: str, lost: str | None = None) -> None:
        super().finish_dead(task_id, rec, reason, "bury" if lost else None)


@_bug("a dead record is in no index", "calm")
class DeadIsNowhere(Model):
    def finish_dead(self, task_id: str, rec: Rec, reason: str, lost: str | None = None) -> None:
        super().finish_dead(task_id, rec, reason, lost)
        self.drop(self.ended, "dead", task_id)


# --- keys ----------------------------------------------------------------------------------------------------------


@_bug("the key frees when a running task is asked to cancel", "keys", "operators")
class KeyFreedAtRequest(Model):
    def _cancel(self, args: list[bytes]) -> Any:
        answer = super()._cancel(args)
        rec = self.tasks.get(args[0].decode())
        if answer[0] == b"asked" and rec is not None:
            self.idem.pop(rec.more.get("key", ""), None)
        return answer


@_bug("the key stays taken after death", "keys")
class KeyNotFreedAtDeath(Model):
    def close_key(self, task_id: str, rec: Rec, state: str, lost: str | None = None) -> int:
        return 0 if state == "dead" else super().close_key(task_id, rec, state, lost)


@_bug("a lost task under bury or hold frees its key", "keys")
class KeyFreedForLost(Model):
    def close_key(self, task_id: str, rec: Rec, state: str, lost: str | None = None) -> int:
        return super().close_key(task_id, rec, state)


@_bug("a done task frees its key at once", "keys")
class KeyFreedAtDone(Model):
    def close_key(self, task_id: str, rec: Rec, state: str, lost: str | None = None) -> int:
        return super().close_key(task_id, rec, "cancelled" if state == "done" else state, lost)


@_bug("a reaped task leaves its key", "keys")
class KeyOutlivesRecord(Model):
    def remove(self, task_id: str, rec: Rec) -> None:
        idem = dict(self.idem)
        super().remove(task_id, rec)
        self.idem = idem


# --- operators -----------------------------------------------------------------------------------------------------


@_bug("a replayed record keeps its expiry", "operators")
class ReplayKeepsExpiry(Model):
    def _replay(self, args: list[bytes]) -> Any:
        answer = super()._replay(args)
        if answer[0] == b"ok":
            self.tasks[args[0].decode()].expiry = True
        return answer


@_bug("a replay does not take its key again", "keys")
class ReplayWithoutKey(Model):
    def _replay(self, args: list[bytes]) -> Any:
        idem = dict(self.idem)
        answer = super()._replay(args)
        self.idem = idem
        return answer


@_bug("a replay takes a key that another task holds", "keys")
class ReplayTakesKey(Model):
    def may_replay(self, task_id: str, rec: Rec | None, version: int, nonce: str) -> str:
        said = super().may_replay(task_id, rec, version, nonce)
        return "ok" if said == "key_taken" else said


@_bug("a replay does not look at the version", "operators")
class ReplayIgnoresVersion(Model):
    def may_replay(self, task_id: str, rec: Rec | None, version: int, nonce: str) -> str:
        return super().may_replay(task_id, rec, rec.version if rec else version, nonce)


@_bug("a late copy of a replay is not known again", "operators")
class ReplayForgetsNonce(Model):
    def _replay(self, args: list[bytes]) -> Any:
        answer = super()._replay(args)
        if args[0].decode() in self.tasks:
            self.tasks[args[0].decode()].more.pop("replayed", None)
        return answer


@_bug("a replay keeps the deaths of the life before", "operators", "keys")
class ReplayKeepsDeaths(Model):
    def _replay(self, args: list[bytes]) -> Any:
        rec = self.tasks.get(args[0].decode())
        before = dict(rec.more) if rec else {}
        answer = super()._replay(args)
        if answer[0] == b"ok" and rec is not None:
            rec.more.update({name: before[name] for name in ("deaths", "scares") if name in before})
        return answer


@_bug("cancelling a running task ends it at once", "operators")
class CancelEndsRunning(Model):
    def _cancel(self, args: list[bytes]) -> Any:
        rec = self.tasks.get(args[0].decode())
        if rec is not None and rec.state == "running" and rec.version == int(args[1]):
            self.leave(args[0].decode(), rec)
            self.finish(args[0].decode(), rec, "cancelled", reason="cancelled")
            return [b"ok", b"cancelled", rec.version]
        return super()._cancel(args)


@_bug("a cancel does not look at the version", "operators")
class CancelIgnoresVersion(Model):
    def _cancel(self, args: list[bytes]) -> Any:
        rec = self.tasks.get(args[0].decode())
        return super()._cancel([args[0], str(rec.version if rec else 0).encode()])


@_bug("a task asked to cancel goes round again when it is handed back", "operators")
class CancelForgotten(Model):
    def requeue(self, task_id: str, rec: Rec, at_us: int) -> str:
        rec.flags = rec.flags.replace("c", "")
        return super().requeue(task_id, rec, at_us)


@_bug("discard removes what still lives", "operators")
class DiscardsTheLiving(Model):
    def _discard(self, args: list[bytes]) -> Any:
        rec = self.tasks.get(args[0].decode())
        if rec is not None and rec.state == "queued":
            self.drop(self.ready, rec.queue, args[0].decode())
            self.remove(args[0].decode(), rec)
            return [b"ok", b"queued", rec.version]
        return super()._discard(args)


# --- notes and follow-ups ------------------------------------------------------------------------------------------


@_bug("a zombie's checkpoint is taken", "own_zombie")
class ZombieCheckpoints(Model):
    def verdict(self, rec: Rec | None, move: str, fence: int, boot: str) -> str:
        if move == "checkpoint" and rec is not None and rec.state in {"running", "queued"}:
            return "ok"
        return super().verdict(rec, move, fence, boot)


@_bug("an older checkpoint replaces a newer one", "network", "mixed")
class CheckpointGoesBack(Model):
    def _checkpoint(self, args: list[bytes]) -> Any:
        rec = self.tasks.get(args[1].decode())
        if rec is not None:
            rec.more.pop("checkpoint", None)
        return super()._checkpoint(args)


@_bug("a step's second result replaces the first", "mixed", "crowd")
class StepOverwritten(Model):
    def _step(self, args: list[bytes]) -> Any:
        rec = self.tasks.get(args[1].decode())
        if rec is not None:
            rec.steps.pop(args[3].decode(), None)
        return super()._step(args)


@_bug("steps are lost when a task is revived", "crash", "zombie")
class StepsLostAtRevival(Model):
    def resurrect(self, task_id: str, rec: Rec, alone: bool, cause: str) -> str:
        rec.steps = {}
        return super().resurrect(task_id, rec, alone, cause)


@_bug("a follow-up that is here is entered again", "network", "follow_up_twice")
class FollowUpsTwice(Model):
    def follow(self, items: list[Item], value: bytes) -> None:
        for nth, item in enumerate(items):
            self.enter(item, nth, False)


@_bug("a repeated commit enters its follow-ups again", "follow_up_after_reap")
class RepeatFollows(Model):
    def _commit(self, args: list[bytes]) -> Any:
        answer = super()._commit(args)
        if answer[0] != b"ok" and answer[0][0] == b"repeat":
            self.follow([Item.read(args, 8 + ITEM * i) for i in range(int(args[7]))], args[6])
        return answer


@_bug("follow-ups are dropped", "calm")
class FollowUpsDropped(Model):
    def follow(self, items: list[Item], value: bytes) -> None:
        """Bug: submits no follow-ups."""
