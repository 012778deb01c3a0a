"""Seeded bugs in users' schedules."""

# ruff: noqa: ARG002 - a bug is often an unused argument

from __future__ import annotations

from functools import partial
from typing import Any

from proof.model.model import Model
from proof.model.state import Item, Timetable
from proof.mutants.mutant import Mutant, register

MUTANTS: list[Mutant] = []
_bug = partial(register, MUTANTS)


@_bug("a schedule that has advanced fires the same time again", "timetables")
class FiresAgain(Model):
    def is_next(self, table: Timetable, version: str, intended: int) -> bool:
        return str(table.version) == version and table.state == "active"


@_bug("an old version fires", "timetables", "edited_under_a_scheduler")
class OldVersionFires(Model):
    def is_next(self, table: Timetable, version: str, intended: int) -> bool:
        return table.state == "active" and table.next == intended


@_bug("a schedule fires before its time", "timetables", "time_goes_back")
class FiresEarly(Model):
    def is_early(self, intended: int, last: int) -> bool:
        return False


@_bug("only the first of several runs is compared with the time", "time_goes_back")
class LaterRunsEarly(Model):
    def is_early(self, intended: int, last: int) -> bool:
        return intended > self.now


@_bug("a firing does not advance", "timetables")
class DoesNotAdvance(Model):
    def advance(self, table: Timetable, ahead: int | None, fired: int) -> None:
        before = table.next
        super().advance(table, ahead, fired)
        table.next = before


@_bug("a schedule without a further time stays active", "timetables", "once")
class NeverEnds(Model):
    def advance(self, table: Timetable, ahead: int | None, fired: int) -> None:
        super().advance(table, ahead, fired)
        table.state = "active"


@_bug("a paused schedule keeps its time, and fires", "timetables")
class PausedFires(Model):
    def _schedule(self, args: list[bytes]) -> Any:
        table = self.timetables.get(args[1].decode())
        before = table.next if table else None
        answer = super()._schedule(args)
        if answer[0] == b"ok" and answer[1] == b"paused":
            self.timetables[args[1].decode()].next = before
        return answer

    def is_next(self, table: Timetable, version: str, intended: int) -> bool:
        return str(table.version) == version and table.next == intended


@_bug("an edit brings a time that is over", "timetables", "edited_with_an_old_clock")
class EditFiresThePast(Model):
    def floor(self, table: Timetable | None) -> int:
        return 0


@_bug("an edit after TIME went back brings a time that was fired", "time_goes_back")
class FiredIsForgotten(Model):
    def floor(self, table: Timetable | None) -> int:
        return self.now


@_bug("a new schedule after TIME went back brings a time that a removed one had fired", "removed_before_time_goes_back")
class RemovedIsForgotten(Model):
    def floor(self, table: Timetable | None) -> int:
        return max(self.now, table.fired if table else 0)


@_bug("an edit drops an occurrence that is due", "timetables")
class EditDropsDue(Model):
    def owes(self, table: Timetable) -> bool:
        return False


@_bug("a pause waits for what is due to be fired", "paused_while_due")
class PauseWaits(Model):
    def _schedule(self, args: list[bytes]) -> Any:
        table = self.timetables.get(args[1].decode())
        if table is not None and self.owes(table) and args[5] == b"paused":
            return self.told_of(b"due", table)
        return super()._schedule(args)


@_bug("a version counts from the one before: after a rollback it comes again", "timetables")
class VersionsCount(Model):
    def next_version(self, table: Timetable | None) -> int:
        return table.version + 1 if table else 1


@_bug("overlap is not looked at", "timetables")
class OverlapIgnored(Model):
    def still_runs(self, table: Timetable) -> bool:
        return False


@_bug("a run that has ended still counts as overlap", "timetables")
class OverlapForEver(Model):
    def still_runs(self, table: Timetable) -> bool:
        return table.last in self.tasks


@_bug("a run that waits does not count as overlap", "timetables")
class OverlapOnlyRunning(Model):
    def still_runs(self, table: Timetable) -> bool:
        return table.last in self.tasks and self.tasks[table.last].state == "running"


@_bug("what ran last is not remembered", "timetables")
class LastForgotten(Model):
    def fire_one(self, table: Timetable, item: Item, nth: int, overlap: str) -> tuple[str, str]:
        before = table.last
        told = super().fire_one(table, item, nth, overlap)
        table.last = before
        return told


@_bug("a run enters over a record that has its id", "pushed_before_it_fires")
class EntersOverItsId(Model):
    def fire_one(self, table: Timetable, item: Item, nth: int, overlap: str) -> tuple[str, str]:
        if item.id in self.tasks:
            del self.tasks[item.id]
        return super().fire_one(table, item, nth, overlap)


@_bug("a declaration resumes a paused schedule", "timetables", "declared_while_paused")
class DeclarationResumes(Model):
    def declared(self, table: Timetable, state: str, same: bool) -> str:
        return table.state if same and table.state == "ended" else state


@_bug("a declaration brings back a schedule that has ended", "once")
class DeclarationRepeatsTheEnd(Model):
    def declared(self, table: Timetable, state: str, same: bool) -> str:
        return table.state if table.state == "paused" else state


@_bug("a declaration takes a schedule that was made at run time", "timetables", "declared_by_others")
class DeclarationTakes(Model):
    def is_taken(self, table: Timetable, group: str) -> bool:
        return table.group != group


@_bug("a declaration takes a schedule that another group fires", "declared_by_others")
class DeclarationMovesGroup(Model):
    def is_taken(self, table: Timetable, group: str) -> bool:
        return table.origin == ""


@_bug("the origin of a schedule that two applications declare is the first one's", "timetables", "declared_by_others")
class FirstOriginStays(Model):
    def _schedule(self, args: list[bytes]) -> Any:
        table = self.timetables.get(args[1].decode())
        before = table.origin if table else ""
        answer = super()._schedule(args)
        if answer[0] == b"repeat" and table is not None:
            table.origin = before
        return answer


@_bug("an edit does not look at the version", "timetables")
class EditsBlindly(Model):
    def _schedule(self, args: list[bytes]) -> Any:
        table = self.timetables.get(args[1].decode())
        seen = str(table.version).encode() if table and args[4] not in {b"*", b"0"} else args[4]
        return super()._schedule([*args[:4], seen, *args[5:]])


@_bug("the same content again is a new version", "timetables")
class RepeatIsAnEdit(Model):
    def _schedule(self, args: list[bytes]) -> Any:
        answer = super()._schedule(args)
        if answer[0] == b"repeat":
            self.timetables[args[1].decode()].version += 1
        return answer


@_bug("unschedule does not look at the version", "timetables", "removed_by_two")
class RemovesBlindly(Model):
    def _unschedule(self, args: list[bytes]) -> Any:
        table = self.timetables.get(args[1].decode())
        return super()._unschedule([*args[:2], str(table.version).encode()] if table else args)


@_bug("unschedule leaves the schedule", "timetables")
class RemovesNothing(Model):
    def _unschedule(self, args: list[bytes]) -> Any:
        table = self.timetables.get(args[1].decode())
        answer = super()._unschedule(args)
        if answer[0] == b"ok" and table is not None:
            self.timetables[args[1].decode()] = table
        return answer


@_bug("promote does not find schedules", "timetables")
class DueNotFound(Model):
    def due_timetables(self, group: str, skip: int) -> tuple[list[Any], int | None]:
        return [], None


@_bug("promote finds another group's schedules", "two_groups")
class FindsAllGroups(Model):
    def due_timetables(self, group: str, skip: int) -> tuple[list[Any], int | None]:
        before = {name: table.group for name, table in self.timetables.items()}
        for table in self.timetables.values():
            table.group = group
        found = super().due_timetables(group, skip)
        for name, table in self.timetables.items():
            table.group = before[name]
        return found


@_bug("promote skips nothing: what nobody here can fire hides the rest", "many_due")
class SkipsNothing(Model):
    def due_timetables(self, group: str, skip: int) -> tuple[list[Any], int | None]:
        return super().due_timetables(group, 0)


@_bug("a full store refuses to pause", "timetables", "paused_when_full")
class FullRefusesPause(Model):
    def _schedule(self, args: list[bytes]) -> Any:
        if args[5] == b"paused":
            self.need_memory()
        return super()._schedule(args)


@_bug("a full store loses an occurrence", "fired_when_full")
class FullLosesOccurrence(Model):
    def _fire(self, args: list[bytes]) -> Any:
        table = self.timetables.get(args[0].decode())
        if self.full and table is not None and args[3]:
            table.next = int(args[3])
        return super()._fire(args)
