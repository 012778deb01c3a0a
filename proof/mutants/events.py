"""Seeded bugs in events: what calls write, and what readers get."""

from __future__ import annotations

from functools import partial
from typing import Any

from proof.model.batches import Batching
from proof.model.events import EVENTS_KEPT
from proof.model.model import Model
from proof.model.state import Entry, Rec
from proof.mutants.mutant import Mutant, register

MUTANTS: list[Mutant] = []
_bug = partial(register, MUTANTS)


@_bug("a burial is not told")
class BurialUntold(Model):
    def tell(self, task_id: str, rec: Rec, was: str, state: str, why: str = "") -> None:
        if state != "dead":
            super().tell(task_id, rec, was, state, why)


@_bug("an expired task ends untold", "mixed", "crowd")
class ExpiryUntold(Model):
    def tell(self, task_id: str, rec: Rec, was: str, state: str, why: str = "") -> None:
        if why != "expired":
            super().tell(task_id, rec, was, state, why)


@_bug("that a running task is asked to stop is not told", "operators")
class RequestUntold(Model):
    def tell(self, task_id: str, rec: Rec, was: str, state: str, why: str = "") -> None:
        if was != state:
            super().tell(task_id, rec, was, state, why)


@_bug("a removed record is not told")
class RemovalUntold(Model):
    def tell(self, task_id: str, rec: Rec, was: str, state: str, why: str = "") -> None:
        if state != "-":
            super().tell(task_id, rec, was, state, why)


@_bug("a task that waits for a rate is not told", "limits")
class RateUntold(Model):
    def tell(self, task_id: str, rec: Rec, was: str, state: str, why: str = "") -> None:
        if (was, state) != ("queued", "scheduled"):
            super().tell(task_id, rec, was, state, why)


@_bug("a commit is told twice")
class CommitTwice(Model):
    def tell(self, task_id: str, rec: Rec, was: str, state: str, why: str = "") -> None:
        for _ in range(2 if state == "done" else 1):
            super().tell(task_id, rec, was, state, why)


@_bug("a promoted task is told as if it had been running")
class WrongOldState(Model):
    def tell(self, task_id: str, rec: Rec, was: str, state: str, why: str = "") -> None:
        super().tell(task_id, rec, "running" if was == "scheduled" else was, state, why)


@_bug("the reason of an end is not told")
class ReasonForgotten(Model):
    def tell(self, task_id: str, rec: Rec, was: str, state: str, why: str = "") -> None:
        super().tell(task_id, rec, was, state, why and "-")


@_bug("who held a task is not told")
class WorkerForgotten(Model):
    def tell(self, task_id: str, rec: Rec, was: str, state: str, why: str = "") -> None:
        super().tell(task_id, rec, was, state, why)
        self.told[-1] = self.told[-1]._replace(worker="-")


@_bug("every change has an entry of its own")
class EntryPerChange(Model):
    def publish(self, topic: str, script: str, rows: list[Any]) -> None:
        for row in rows:
            super().publish(topic, script, [row])


@_bug("changes are told in reverse", "keys", "joins")
class Reversed(Model):
    def publish(self, topic: str, script: str, rows: list[Any]) -> None:
        super().publish(topic, script, rows[::-1])


@_bug("numbers have a gap that nobody tells of")
class UnnumberedGap(Model):
    def publish(self, topic: str, script: str, rows: list[Any]) -> None:
        self.event_numbers[topic] = self.event_numbers.get(topic, 0) + (script == "retry")
        super().publish(topic, script, rows)


@_bug("entries are numbered, not changes")
class NumbersEntries(Model):
    def publish(self, topic: str, script: str, rows: list[Any]) -> None:
        super().publish(topic, script, rows)
        self.event_numbers[topic] -= len(rows) - 1


@_bug("a stream is trimmed too much", "crowd", "storm")
class TrimsTooMuch(Model):
    def trim(self, topic: str, until: int) -> None:
        super().trim(topic, until + EVENTS_KEPT // 2)


@_bug("a stream is never trimmed", "crowd", "storm")
class TrimsNever(Model):
    def trim(self, topic: str, until: int) -> None:
        pass


@_bug("a lost worker is not told", "crash")
class LostUntold(Model):
    def news(self, topic: str, *row: object) -> None:
        if row[0] != "lost":
            super().news(topic, *row)


@_bug("a pause is not told", "operators")
class PauseUntold(Model):
    def news(self, topic: str, *row: object) -> None:
        if row[0] != "paused":
            super().news(topic, *row)


@_bug("a limit that an operator sets is not told", "limits_set")
class LimitUntold(Model):
    def news(self, topic: str, *row: object) -> None:
        if row[0] != "limit_set":
            super().news(topic, *row)


@_bug("a firing is not told", "timetables")
class FiringUntold(Model):
    def news(self, topic: str, *row: object) -> None:
        if row[0] != "fired":
            super().news(topic, *row)


@_bug("a batch ends untold", "workflows")
class BatchEndUntold(Model):
    def news(self, topic: str, *row: object) -> None:
        if topic != "batches" or row[0] != "ended":
            super().news(topic, *row)


@_bug(
    "a batch that waits for a replayed member again is not told",
    "replayed_inner_member",
    "replayed_late",
    "replayed_member",
)
class RejoinUntold(Model):
    def rejoin(self, task_id: str, rec: Rec) -> None:
        before = dict(self.told_news)
        Batching.rejoin(self, task_id, rec)
        self.told_news = before


@_bug("a batch is cancelled and told so each time", "cancelled_batch", "workflows")
class CancelToldAgain(Model):
    def _cancel_batch(self, args: list[bytes]) -> Any:
        group = self.batches.get(args[0].decode())
        if group is not None and group.stopped and group.state != "ended":
            self.news("batches", "cancelled", group.id, group.name, group.state, group.state, "", "")
        return super()._cancel_batch(args)


@_bug("a reader whose entry was trimmed or rolled back is told nothing", "readers")
class NumberIsEnough(Model):
    def is_there(self, position: str, left: list[Entry], n: int, number: int) -> bool:
        return super().is_there(position, left, n, number) or bool(left)


@_bug("a reader that is beyond the end waits until the numbers come by", "readers", "wiped")
class BeyondTheEnd(Model):
    def is_there(self, position: str, left: list[Entry], n: int, number: int) -> bool:
        return super().is_there(position, left, n, number) or number < n


@_bug("a reader that missed nothing is told that it did", "readers")
class FalseAlarm(Model):
    def is_there(self, position: str, left: list[Entry], n: int, number: int) -> bool:
        return super().is_there(position, left, n, number) and len(left) < 3


@_bug("a page skips an entry", "readers")
class SkipsAnEntry(Model):
    def _events(self, args: list[bytes]) -> Any:
        page = super()._events(args)
        return page if len(page) < 6 else [*page[:4], *page[5:]]
