"""Seeded bugs in the locks of user code."""

# ruff: noqa: ARG002 - a bug is often an unused argument

from __future__ import annotations

from functools import partial
from typing import Any

from proof.model.model import Model
from proof.model.state import Hold
from proof.mutants.mutant import Mutant, register

MUTANTS: list[Mutant] = []
_bug = partial(register, MUTANTS)


@_bug("a lock that another holds is given away", "locks")
class LockNotExclusive(Model):
    def makes_room(self, hold: Hold, task_id: str, fence: str) -> bool:
        return True


@_bug("the locks of a lost boot are held until their time is over", "locks")
class LostBootsHold(Model):
    def makes_room(self, hold: Hold, task_id: str, fence: str) -> bool:
        return hold.task_id == task_id != "-" and int(hold.fence) < int(fence)


@_bug("a task that runs again waits for its own earlier attempt", "lock_of_an_earlier_attempt")
class EarlierAttemptHolds(Model):
    def makes_room(self, hold: Hold, task_id: str, fence: str) -> bool:
        return hold.task_id != "-" and self.is_lost(hold.owner)


@_bug("an attempt takes the lock of a later one of its task", "lock_of_an_earlier_attempt")
class ZombieTakesOver(Model):
    def makes_room(self, hold: Hold, task_id: str, fence: str) -> bool:
        return hold.task_id != "-" and (self.is_lost(hold.owner) or hold.task_id == task_id)


@_bug("a lost boot takes locks", "lock_of_the_lost")
class LostBootLocks(Model):
    def _lock(self, args: list[bytes]) -> Any:
        outside = [*args[:4], b"-", b"-"]
        return super()._lock(outside if super()._lock(args) == [b"gone"] else args)


@_bug("anyone's unlock frees a lock", "locks")
class UnlockFreesAnyones(Model):
    def _unlock(self, args: list[bytes]) -> Any:
        hold = self.holds.get(args[0].decode())
        return super()._unlock(args if hold is None else [args[0], hold.token.encode()])


@_bug("unlock takes a result away", "locks")
class UnlockForgetsResult(Model):
    def _unlock(self, args: list[bytes]) -> Any:
        said, hold = self.own(args)
        if hold is not None:
            del self.holds[args[0].decode()]
        return said


@_bug("a result is written over another's lock", "locks")
class ConcludesAnyones(Model):
    def _conclude(self, args: list[bytes]) -> Any:
        hold = self.holds.get(args[0].decode())
        if hold is not None and hold.token != args[1].decode() and not hold.done:
            hold.token = args[1].decode()
        return super()._conclude(args)


@_bug("a second result replaces the first", "lock_repeated")
class ConcludesTwice(Model):
    def _conclude(self, args: list[bytes]) -> Any:
        _, hold = self.own(args)
        if hold is not None:
            hold.result = args[3]
        return super()._conclude(args)


@_bug("a repeated conclude is told stale", "locks")
class RepeatedConcludeIsStale(Model):
    def _conclude(self, args: list[bytes]) -> Any:
        said = super()._conclude(args)
        return b"stale" if said == b"repeat" else said


@_bug("a holder whose time is over is refused though nobody came", "locks")
class LateIsRefused(Model):
    def own(self, args: list[bytes]) -> tuple[bytes, Hold | None]:
        said, hold = super().own(args)
        return (b"missing", None) if hold is not None and hold.until <= self.now else (said, hold)


@_bug("a renewed lock never ends", "locks")
class RenewedForEver(Model):
    def _renew(self, args: list[bytes]) -> Any:
        said = super()._renew(args)
        if said == b"ok":
            self.holds[args[0].decode()].until = 2**60
        return said


@_bug("a repeated lock is told in flight, by itself", "locks")
class RepeatedLockIsRefused(Model):
    def _lock(self, args: list[bytes]) -> Any:
        hold = self.holds.get(args[0].decode())
        if hold is not None and not hold.done and hold.until > self.now and hold.token == args[1].decode():
            return [b"in_flight", hold.until - self.now, hold.owner.encode(), hold.task_id.encode()]
        return super()._lock(args)


@_bug("a full store refuses results of locks", "locks")
class FullRefusesConclude(Model):
    def _conclude(self, args: list[bytes]) -> Any:
        self.need_memory()
        return super()._conclude(args)


@_bug("a full store refuses the locks of running tasks", "locks")
class FullRefusesLock(Model):
    def _lock(self, args: list[bytes]) -> Any:
        self.need_memory()
        return super()._lock(args)
