"""Seeded bugs in what follows the end of a task: follow-ups of a burial, joins, tasks that continue as others."""

from __future__ import annotations

from functools import partial
from typing import Any

from proof.model.model import Model
from proof.model.state import ITEM, Item, Rec
from proof.mutants.mutant import Mutant, register

MUTANTS: list[Mutant] = []
_bug = partial(register, MUTANTS)


def _items(args: list[bytes]) -> list[Item]:
    """Return the follow-ups of a burial, or of the first task of a commit. Both are at the same place."""
    return [Item.read(args, 8 + ITEM * i) for i in range(int(args[7]))]


# --- follow-ups of a burial ----------------------------------------------------------------------------------------


@_bug("a burial drops its follow-ups", "joins")
class BuryDropsFollowUps(Model):
    def _bury(self, args: list[bytes]) -> Any:
        return super()._bury([*args[:7], b"0"])


@_bug("a repeated burial enters its follow-ups again", "bury_repeated")
class RepeatedBuryFollows(Model):
    def _bury(self, args: list[bytes]) -> Any:
        answer = super()._bury(args)
        if answer[0][0] == b"repeat":
            self.follow(_items(args), args[6])
        return answer


@_bug("a zombie's burial enters its follow-ups", "bury_repeated")
class StaleBuryFollows(Model):
    def _bury(self, args: list[bytes]) -> Any:
        answer = super()._bury(args)
        if answer[0][0] == b"stale":
            self.follow(_items(args), args[6])
        return answer


# --- going on as another task --------------------------------------------------------------------------------------


@_bug("a replaced task lines up in its old queue", "joins")
class ReplacedInTheOldQueue(Model):
    def _retry(self, args: list[bytes]) -> Any:
        rec = self.tasks.get(args[2].decode())
        queue = rec.queue if rec else ""
        answer = super()._retry(args)
        if rec is not None and len(args) > 7 and answer[0][:2] == [b"ok", b"queued"] and rec.queue != queue:
            order = self.ready[rec.queue][args[2].decode()]
            self.drop(self.ready, rec.queue, args[2].decode())
            self.ready.setdefault(queue, {})[args[2].decode()] = order
        return answer


@_bug("a replaced task keeps its old payload", "joins")
class ReplacedKeepsPayload(Model):
    def replace(self, rec: Rec, tail: bytes) -> None:
        body = rec.body
        super().replace(rec, tail)
        rec.body = body


@_bug("a replaced task gives back other bytes than it took", "goes_on_as_another")
class ReplacedChangesHeld(Model):
    def replace(self, rec: Rec, tail: bytes) -> None:
        super().replace(rec, tail)
        rec.held = None if rec.held is None else len(tail)


@_bug("a replaced task forgets how long its key is kept", "goes_on_as_another", "joins")
class ReplacedForgetsKeyTtl(Model):
    def replace(self, rec: Rec, tail: bytes) -> None:
        super().replace(rec, tail)
        rec.key_ttl = None


@_bug("a repeated retry replaces the task again", "goes_on_as_another")
class RepeatReplaces(Model):
    def _retry(self, args: list[bytes]) -> Any:
        answer = super()._retry(args)
        if answer[0][0] == b"repeat" and len(args) > 7:
            rec = self.tasks[args[2].decode()]
            self.replace(rec, args[7])
            rec.version += 1
        return answer


# --- joins -----------------------------------------------------------------------------------------------------------


@_bug("a join counts what is brought, not the parts there are", "joined_again")
class PartsCountedTwice(Model):
    def bring(self, task_id: str, size: int, part: str, value: bytes) -> None:
        rec = self.tasks.get(task_id)
        if rec is not None and part in rec.steps:
            size -= 1
        super().bring(task_id, size, part, value)


@_bug("a repeated commit brings its part as another one", "joined_by_three", "joins")
class RepeatBringsAnother(Model):
    def _commit(self, args: list[bytes]) -> Any:
        answer = super()._commit(args)
        if answer[0] != b"ok" and answer[0][0] == b"repeat":
            for item in _items(args):
                if item.join:
                    self.bring(item.id, item.join[0], f"{item.join[1]} again", args[6])
        return answer


@_bug("a join is queued though one part is missing", "joins")
class JoinedTooEarly(Model):
    def bring(self, task_id: str, size: int, part: str, value: bytes) -> None:
        super().bring(task_id, size - 1, part, value)


@_bug("a complete join waits for its deadline", "joins")
class CompleteJoinWaits(Model):
    def complete(self, task_id: str, rec: Rec) -> None:
        """Bug: does not check."""


@_bug("a complete join stands last in its queue", "joins")
class CompleteJoinStandsLast(Model):
    def complete(self, task_id: str, rec: Rec) -> None:
        due = self.due[task_id]
        super().complete(task_id, rec)
        self.line_up(task_id, rec, due * 1000)


@_bug("a part is stored for a join that is done", "joins")
class PartForTheDone(Model):
    def takes_parts(self, rec: Rec) -> bool:
        return rec.state != "cancelled"


@_bug("a join that is running takes no part", "joins")
class RunningTakesNoPart(Model):
    def takes_parts(self, rec: Rec) -> bool:
        return rec.state != "running" and super().takes_parts(rec)


@_bug("a dead join takes no part", "joined_too_late")
class DeadTakesNoPart(Model):
    def takes_parts(self, rec: Rec) -> bool:
        return rec.state != "dead" and super().takes_parts(rec)


@_bug("a complete join is queued and still scheduled", "joins")
class CompleteJoinStaysDue(Model):
    def complete(self, task_id: str, rec: Rec) -> None:
        due = self.due[task_id]
        super().complete(task_id, rec)
        self.due[task_id] = due


@_bug("a zombie's commit brings its part", "joined_by_three", "joins")
class StaleBringsItsPart(Model):
    def _commit(self, args: list[bytes]) -> Any:
        answer = super()._commit(args)
        if answer[0] != b"ok" and answer[0][0] == b"stale":
            for item in _items(args):
                if item.join:
                    self.bring(item.id, *item.join, args[6])
        return answer


@_bug("a burial brings no value", "joins")
class BuryBringsNothing(Model):
    def _bury(self, args: list[bytes]) -> Any:
        return super()._bury([*args[:6], b"", *args[7:]])


@_bug("the first part is lost: whoever enters a join brings none", "joins")
class FirstPartLost(Model):
    def follow(self, items: list[Item], value: bytes) -> None:
        known = [item for item in items if not item.join or item.id in self.tasks]
        for nth, item in enumerate(items):
            if item not in known and self.look(item) is None:
                self.enter(item, nth, False)
        super().follow(known, value)


@_bug("parts are not handed over", "joins")
class PartsNotHandedOver(Model):
    def hand_over(self, task_id: str, rec: Rec) -> list[Any]:
        answer = super().hand_over(task_id, rec)
        if answer[2]:
            answer[2][1] = []
        return answer
