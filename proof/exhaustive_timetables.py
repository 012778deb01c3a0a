"""Every interleaving of a small case of users' schedules: one schedule, two schedulers, one operator.

    scheduler  reads what is due (promote), and later fires it or never does; if the reply is lost, it fires again
    operator   reads the schedule, and later edits, pauses, resumes or removes that version of it
    time       advances by half a period, `ticks` times, at any point
    fault      one of: a reply is lost; the store returns to any earlier point of the path; TIME goes back once

The checker judges every call. Cases that differ only in the values of versions count as one: versions are only compared
with each other, so only their order matters.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from proof.checker.events import forget_events
from proof.checker.ghost import Violation
from proof.model.model import Model
from proof.simulator.world import BASE_US, ModelBackend, World
from relier.codec.keyring import NO_KEYS
from relier.envelope import seal
from relier.ledger.schedule_records import NEW, DueSchedule, ScheduleState, StoredSchedule
from relier.schedules.definition import Definition, read_definition, sealed_as
from relier.schedules.firing import FireContext
from relier.store.call import Call, result_or_error

PERIOD_MS = 1000
NAME = "s"


class Point(NamedTuple):
    """The store at one moment."""

    store: bytes
    at_us: int


@dataclass(frozen=True, slots=True)
class TableCase:
    """`seen`: the due occurrence that each scheduler saw, and when. `looked`: the schedule as the operator saw it."""

    now: Point
    seen: tuple[tuple[DueSchedule, int] | None, ...] = (None, None)
    looked: StoredSchedule | None = None
    acts: int = 3
    ticks: int = 5
    faults: int = 1
    saved: Point | None = None


class TableSearch:
    """Search depth first over cases."""

    def __init__(self, model: type[Model] = Model, fault: str = "", **definition: Any) -> None:
        self.world = World(0, "calm", ModelBackend(model()))
        self.context = FireContext(self.world.ledger, "proof", NO_KEYS)
        self.fault = fault
        self.states = self.transitions = 0
        payload = seal(b"[[],{}]", schema_version=1, pushed_ms=0, task_id=sealed_as(NAME), name="work").decode()
        timing = {"kind": "every", "period_ms": PERIOD_MS, "start_ms": 0}
        self.first = Definition(timing, "work", payload, **definition)
        self.edited = Definition(timing | {"period_ms": 1500}, "work", payload, **definition)

    def load(self, point: Point) -> Model:
        model, memory = pickle.loads(point.store)  # noqa: S301 - our own
        self.world.backend.model = model  # type: ignore[misc]
        self.world.checker.memory, self.world.checker.table_versions = memory, {}
        self.world.last_us = point.at_us
        return model  # type: ignore[no-any-return]

    def dump(self) -> Point:
        forget_events(self.world.backend.model, self.world.checker.memory)
        store = pickle.dumps((self.world.backend.model, self.world.checker.memory), pickle.HIGHEST_PROTOCOL)
        return Point(store, self.world.last_us)

    def run(self, call: Call[Any]) -> Any:
        self.transitions += 1
        self.world.last_us += 1
        time_us = self.world.backend.time_us = self.world.last_us
        raw = self.world.backend.run(call)
        self.world.checker.applied(call, raw, time_us)
        return result_or_error(call, raw)

    def begin(self) -> TableCase:
        self.world.last_us = BASE_US
        at = BASE_US // 1000 + PERIOD_MS
        self.run(self.world.ledger.schedule(NAME, NEW, self.first.encoded(), at))
        return TableCase(self.dump())

    # --- steps ---------------------------------------------------------------------------------------------------

    def steps(self, case: TableCase) -> Iterator[TableCase]:
        if case.ticks:
            yield replace(case, now=Point(case.now.store, case.now.at_us + 500 * PERIOD_MS), ticks=case.ticks - 1)
        if case.faults and self.fault == "back":
            yield replace(case, now=Point(case.now.store, case.now.at_us - 700 * PERIOD_MS), faults=0)
        if case.faults and self.fault == "rollback":
            if case.saved is None:
                yield replace(case, saved=case.now)
            else:
                yield replace(case, now=Point(case.saved.store, case.now.at_us), saved=None, faults=0)
        for i in range(len(case.seen)):
            yield from self.schedulers(case, i)
        yield from self.operators(case)

    def schedulers(self, case: TableCase, i: int) -> Iterator[TableCase]:
        def seeing(saw: tuple[DueSchedule, int] | None, **more: Any) -> TableCase:
            seen = (*case.seen[:i], saw, *case.seen[i + 1 :])
            return replace(case, now=self.dump(), seen=seen, **more)

        self.load(case.now)
        held = case.seen[i]
        if held is None:
            found = self.run(self.world.ledger.promote())
            if found.schedules:
                yield seeing((found.schedules[0], found.now_ms))
            return
        self.run(self.fire(*held))
        yield seeing(None)
        if case.faults and self.fault == "lost reply":
            yield seeing(held, faults=0)

    def fire(self, due: DueSchedule, now_ms: int) -> Call[Any]:
        call = self.context.call(due, now_ms)
        times = tuple(int(at) for at in call.args[7:] if isinstance(at, int) and at > 10**12)
        runs = read_definition(NAME, due.definition).runs(NAME, "proof", due.version, times, NO_KEYS)
        self.world.subs.update((sub.id, sub) for _, sub in runs)
        return call

    def operators(self, case: TableCase) -> Iterator[TableCase]:
        ledger = self.world.ledger
        if case.looked is None:
            if case.acts:
                self.load(case.now)
                rows = self.run(ledger.schedules(NAME)).schedules
                if rows:
                    yield replace(case, now=self.dump(), looked=rows[0], acts=case.acts - 1)
            return
        version, now_ms = case.looked.version, case.now.at_us // 1000
        other = self.edited if case.looked.definition == self.first.encoded() else self.first
        ahead = other.when().after(now_ms)
        again = read_definition(NAME, case.looked.definition).when().after(now_ms)
        for call in (
            ledger.schedule(NAME, version, other.encoded(), ahead),
            ledger.schedule(NAME, version, case.looked.definition, None, state=ScheduleState.PAUSED),
            ledger.schedule(NAME, version, case.looked.definition, again),
            ledger.unschedule(NAME, version),
        ):
            self.load(case.now)
            self.run(call)
            yield replace(case, now=self.dump(), looked=None)

    # --- when two cases are alike --------------------------------------------------------------------------------

    def alike(self, case: TableCase) -> Any:
        rank = {version: n for n, version in enumerate(sorted(self.versions(case)))}
        points = [self.shape(point, rank) for point in (case.now, case.saved) if point]
        seen = sorted(
            str(saw and (rank[int(saw[0].version)], saw[0].intended_ms, saw[1], saw[0].definition)) for saw in case.seen
        )
        looked = case.looked and (rank[int(case.looked.version)], case.looked.definition)
        return repr((points, seen, looked, case.acts, case.ticks, case.faults, case.saved is None))

    def versions(self, case: TableCase) -> set[int]:
        found = {int(saw[0].version) for saw in case.seen if saw}
        found |= {int(case.looked.version)} if case.looked else set()
        points = (self.load(point) for point in (case.now, case.saved) if point)
        return found | {table.version for model in points for table in model.timetables.values()}

    def shape(self, point: Point, rank: dict[int, int]) -> Any:
        model = self.load(point)
        tables = [
            (rank[t.version], t.state, t.next, t.fired, t.definition, bool(t.last)) for t in model.timetables.values()
        ]
        return point.at_us // 1000, tables, sorted(at for _, at in self.world.checker.memory.occurrences)

    def explore(self, most: int = 10**9) -> Violation | None:
        """Visit every case. Return the first violation, or None."""
        line = [self.begin()]
        known = {self.alike(line[0])}
        try:
            while line and self.states < most:
                case = line.pop()
                self.states += 1
                for after in self.steps(case):
                    key = self.alike(after)
                    if key not in known:
                        known.add(key)
                        line.append(after)
        except Violation as violation:
            return violation
        return None


TABLE_INSTANCES: dict[str, dict[str, Any]] = {
    "a schedule, a lost reply": {"fault": "lost reply"},
    "a schedule, a rollback": {"fault": "rollback"},
    "a schedule, TIME goes back": {"fault": "back", "catch_up": "all"},
    "a schedule, overlap skip": {"overlap": "skip"},
}


def explore_tables(name: str) -> tuple[str, bool]:
    """Explore one instance. Return what was seen, and whether anything was violated."""
    began = time.perf_counter()
    search = TableSearch(**TABLE_INSTANCES[name])
    violation = search.explore()
    took = time.perf_counter() - began
    figures = f"{search.states:,} states, {search.transitions:,} calls, {took:.1f} s"
    return f"exhaustive: {name}: {figures}: {violation or 'no violation'}", violation is not None
