"""The model's schedules of users: schedule, fire, unschedule, schedules. In the proof, "timetable" is the word for
these, and "schedule" means a simulated run.
"""

from __future__ import annotations

from typing import Any

from proof.model.shared import Pieces
from proof.model.state import ITEM, Item, Timetable
from relier.ledger.defaults import DUE_SCHEDULES, FIRES_KEPT

LIVE = frozenset({"scheduled", "queued", "running"})


class Timetables(Pieces):
    """A timetable has a version, a state and, while it is active, the next intended time."""

    def _schedule(self, args: list[bytes]) -> Any:
        name, group, origin, seen, state, ahead = (arg.decode() for arg in args[1:7])
        table, definition = self.timetables.get(name), args[7]
        declares = seen == "*"
        if table is not None and declares and self.is_taken(table, group):
            return self.told_of(b"taken", table)
        same = table is not None and (table.definition, table.group) == (definition, group)
        same = same and table is not None and (declares or table.origin == origin)
        if table is not None and declares:
            state = self.declared(table, state, same)
        if table is not None and same and table.state == state:
            table.origin = origin
            return self.told_of(b"repeat", table)
        if not declares and seen != (str(table.version) if table else "0"):
            return self.told_of(b"conflict" if table else b"missing", table)
        if table is not None and self.owes(table) and state in {"active", "ended"}:
            return self.told_of(b"due", table)
        if state == "active" and int(ahead) <= self.floor(table):
            return self.told_of(b"late", table)
        if state == "active":
            self.need_memory()
        version, was, floor = self.next_version(table), table.state if table else "", self.floor(table)
        if table is None:
            table = self.timetables[name] = Timetable(version, state, group, origin, definition)
        else:
            table.version, table.state, table.group = version, state, group
            table.origin, table.definition = origin, definition
        table.next = int(ahead) if state == "active" else None
        kinds = {"": "created", state: "changed"}
        kind = kinds.get(was) or {"active": "resumed"}.get(state, state)
        self.news("schedules", kind, name, "", was, state, version, "")
        return self.told_of(b"ok", table, floor)

    def is_taken(self, table: Timetable, group: str) -> bool:
        """Return whether code may not declare a timetable: it was created at run time, or another group fires it."""
        return table.origin == "" or table.group != group

    def declared(self, table: Timetable, state: str, same: bool) -> str:
        """Return the state after a declaration: a pause stays, and so does an end if nothing changed."""
        return table.state if table.state == "paused" or (same and table.state == "ended") else state

    def owes(self, table: Timetable) -> bool:
        """Return whether an occurrence is due and has not been fired."""
        return table.state == "active" and table.next is not None and table.next <= self.now

    def floor(self, table: Timetable | None) -> int:
        """Return the time after which the next time of a new or edited timetable must be."""
        return max(self.now, table.fired if table else self.removed_fired)

    def next_version(self, table: Timetable | None) -> int:
        return max(table.version + 1 if table else 0, self.time_us)

    def told_of(self, verdict: bytes, table: Timetable | None, floor_before: int = 0) -> list[Any]:
        floor = str(floor_before or self.floor(table)).encode()
        if table is None:
            return [verdict, b"", b"0", b"", floor, b"", b""]
        at = b"" if table.next is None else str(table.next).encode()
        words = (table.state.encode(), str(table.version).encode(), at, floor, table.origin.encode())
        return [verdict, *words, table.definition]

    def _fire(self, args: list[bytes]) -> Any:
        name, version, intended, ahead, missed, overlap = (arg.decode() for arg in args[:6])
        table = self.timetables.get(name)
        if table is None:
            return [b"missing", b"", b"0", b"", []]
        runs = [(int(args[7 + a]), Item.read(args, 8 + a)) for a in range(0, (ITEM + 1) * int(args[6]), ITEM + 1)]
        if not self.is_next(table, version, int(intended)):
            return self.fire_answer(b"stale", table, [])
        last = runs[-1][0] if runs else int(intended)
        if self.is_early(int(intended), last):
            return self.fire_answer(b"early", table, [])
        self.need_memory()
        if missed != "0":
            self.log_fire(table, "missed", intended, "", missed)
            self.news("schedules", "missed", name, "", "active", "active", version, missed)
        outcomes: list[bytes] = []
        for nth, (at, item) in enumerate(runs, 1):
            outcome, task_id = self.fire_one(table, item, nth, overlap)
            self.log_fire(table, outcome, str(at), task_id, "0")
            self.news("schedules", outcome, name, task_id, "active", "active", version, at)
            outcomes += [outcome.encode(), task_id.encode()]
        self.ring_lined_up()
        self.advance(table, int(ahead) if ahead else None, max(int(intended), last))
        if table.state == "ended":
            self.news("schedules", "ended", name, "", "active", "ended", version, "")
        return self.fire_answer(b"ok", table, outcomes)

    def is_next(self, table: Timetable, version: str, intended: int) -> bool:
        return str(table.version) == version and table.state == "active" and table.next == intended

    def is_early(self, intended: int, last: int) -> bool:
        return max(intended, last) > self.now

    def fire_one(self, table: Timetable, item: Item, nth: int, overlap: str) -> tuple[str, str]:
        if overlap == "skip" and self.still_runs(table):
            return "skipped_overlap", table.last
        known = self.look(item)
        if known is None:
            self.enter(item, nth, False)
        task_id = item.id if known is None else known[1].decode()
        if task_id == item.id:
            table.last = task_id
        return "fired" if known is None else "duplicate", task_id

    def still_runs(self, table: Timetable) -> bool:
        rec = self.tasks.get(table.last)
        return rec is not None and rec.state in LIVE

    def advance(self, table: Timetable, ahead: int | None, fired: int) -> None:
        table.next, table.fired = ahead, fired
        if ahead is None:
            table.state = "ended"

    def log_fire(self, table: Timetable, outcome: str, intended: str, task_id: str, skipped: str) -> None:
        table.fires.insert(0, [outcome, intended, str(self.now), task_id, skipped])
        del table.fires[FIRES_KEPT:]

    def fire_answer(self, verdict: bytes, table: Timetable, outcomes: list[bytes]) -> list[Any]:
        at = b"" if table.next is None else str(table.next).encode()
        return [verdict, table.state.encode(), str(table.version).encode(), at, outcomes]

    def _unschedule(self, args: list[bytes]) -> Any:
        _, name, version = (arg.decode() for arg in args)
        table = self.timetables.get(name)
        if table is None:
            return [b"missing", b"", b"0"]
        said = [table.state.encode(), str(table.version).encode()]
        if str(table.version) != version:
            return [b"conflict", *said]
        del self.timetables[name]
        self.removed_fired = max(self.removed_fired, table.fired)
        self.news("schedules", "removed", name, "", table.state, "", table.version, "")
        return [b"ok", *said]

    def _schedules(self, args: list[bytes]) -> Any:
        name, group = args[0].decode(), args[1].decode()
        if name:
            found = {name: self.timetables[name]} if name in self.timetables else {}
        else:
            found = {each: table for each, table in self.timetables.items() if table.group == group}
        rows = [self.row(each, table, int(args[3])) for each, table in found.items()]
        return [str(self.now).encode(), b"", *rows]

    def row(self, name: str, table: Timetable, fires: int) -> list[Any]:
        _, state, version, at, _, origin, definition = self.told_of(b"", table)
        words = [name.encode(), version, state, table.group.encode(), origin, definition, table.last.encode(), at]
        return [*words, str(table.fired).encode(), [table.shown(fire) for fire in table.fires[:fires]]]

    def due_timetables(self, group: str, skip: int) -> tuple[list[Any], int | None]:
        """Return the timetables that are due, and the next time of those that are not."""
        active = [(t.next, name) for name, t in self.timetables.items() if t.group == group and t.next is not None]
        page = sorted(active)[skip : skip + DUE_SCHEDULES + 1]
        due = [(at, name) for at, name in page if at <= self.now][:DUE_SCHEDULES]
        ahead = page[len(due)][0] if len(page) > len(due) and page[len(due)][0] > self.now else None
        rows = [(name, self.timetables[name], at) for at, name in due]
        return [[n.encode(), str(t.version).encode(), str(at).encode(), t.definition] for n, t, at in rows], ahead
