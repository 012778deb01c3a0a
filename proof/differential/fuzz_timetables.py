"""Random calls for users' schedules: a separate stream next to those of fuzz.py."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from proof.model.model import Model
from relier.ledger.ledger import Ledger
from relier.ledger.records import Submission
from relier.ledger.schedule_records import DECLARE, NEW, Overlap, ScheduleState
from relier.settings import Settings
from relier.store.call import Call, Durability

NAMES = ["s0", "s1", "s2", *(f"m{n}" for n in range(12))]
RUNS = [f"r{n}" for n in range(12)]
GROUPS = ["native", "native", "native", "celery"]
OVERLAPS: list[Overlap] = ["allow", "skip"]
ORIGINS = ["", "", "app", "other"]


class TimetableFuzzer:
    """Make random calls on a few schedules, and sometimes on more schedules than one `promote` returns."""

    def __init__(self, rng: random.Random, model: Model) -> None:
        self.rng = rng
        self.model = model
        self.ledger = Ledger(Settings(namespace="differential"))
        self.kept: list[Call[Any]] = []
        self.crowded = rng.random() < 0.4  # many schedules, seldom fired

    def name(self) -> str:
        return self.rng.choice(NAMES[:3] if not self.crowded and self.rng.random() < 0.9 else NAMES)

    def schedule(self) -> Call[Any]:
        rng, name = self.rng, self.name()
        table = self.model.timetables.get(name)
        version = str((table.version if table else 0) + rng.choice([0, 0, 0, 0, 1]))
        state = rng.choice([*ScheduleState, *[ScheduleState.ACTIVE] * (12 if self.crowded else 3)])
        ahead = self.model.now + rng.choice([-500, 0, 1, 400, 2_000, 30_000])
        definition, group, origin = rng.choice([b"{}", b"[1]", b'"/x"']), rng.choice(GROUPS), rng.choice(ORIGINS)
        if table is not None and rng.random() < 0.5:
            definition, group, origin = table.definition, table.group, table.origin
        return self.ledger.schedule(
            name,
            rng.choice([version, version, DECLARE, NEW]),
            definition,
            ahead if state is ScheduleState.ACTIVE else None,
            state=state,
            group=group,
            origin=origin,
            durability=rng.choice(list(Durability)),
        )

    def run(self, task_id: str = "") -> Submission:
        rng = self.rng
        return Submission(
            id=task_id or rng.choice(RUNS),
            name="app.run",
            payload=rng.randbytes(rng.choice([0, 3, 100])),
            queue=rng.choice(["alpha", "runs"]),
            priority=rng.choice([0, 0, 2]),
            key=rng.choice(["", "", "", "k1", "k3"]),
            key_ttl_ms=rng.choice([0, 2_000]),
            on_conflict=rng.choice(["return", "replace"]),
            delay_ms=rng.choice([0, 0, 0, 500]),
            result_ttl_ms=rng.choice([None, 0, 3_000]),
            tomb_ttl_ms=rng.choice([None, None, 5_000]),
        )

    def fire(self) -> Call[Any]:
        rng, name = self.rng, self.name()
        due = [each for each, table in self.model.timetables.items() if self.model.owes(table)]
        name = rng.choice(due) if due and rng.random() < 0.8 else name
        table = self.model.timetables.get(name)
        version = str((table.version if table else 1) + rng.choice([0, 0, 0, 0, 0, 1]))
        intended = ((table.next if table else None) or self.model.now) + rng.choice([0, 0, 0, 0, 0, 0, 10])
        times = sorted(intended + rng.choice([0, 100, 5_000]) for _ in range(rng.choice([0, 1, 1, 1, 3])))
        ahead = None if rng.random() < 0.1 else max([intended, *times]) + rng.choice([1, 700, 9_000])
        runs = [(at, self.run()) for at in times]
        missed, overlap = rng.choice([0, 0, 3]), rng.choice(OVERLAPS)
        return self.ledger.fire(name, version, intended, ahead, runs, missed=missed, overlap=overlap)

    def unschedule(self) -> Call[Any]:
        fired = [name for name, table in self.model.timetables.items() if table.fired > self.model.now - 1500]
        name = self.rng.choice(fired) if fired and self.rng.random() < 0.7 else self.name()
        table = self.model.timetables.get(name)
        version = str((table.version if table else 1) + self.rng.choice([0, 0, 1]))
        return self.ledger.unschedule(name, version, self.rng.choice(list(Durability)))

    def schedules(self) -> Call[Any]:
        rng = self.rng
        return self.ledger.schedules(
            self.name() if rng.random() < 0.6 else "", group=rng.choice(GROUPS), fires=rng.choice([1, 3, 20])
        )

    def promote(self) -> Call[Any]:
        rng = self.rng
        most, skip = rng.choice([0, 1, 100]), rng.choice([0, 0, 0, 1, 10])
        return self.ledger.promote(most, skip_schedules=skip, group=rng.choice(GROUPS))

    def again(self) -> Call[Any]:
        return self.rng.choice(self.kept) if self.kept else self.promote()

    def pick(self) -> Call[Any]:
        moves: list[Callable[[], Call[Any]]] = [self.schedule, self.schedule, self.fire, self.promote, self.again]
        moves += [self.schedule] * 4 if self.crowded else [self.fire, self.fire, self.schedules]
        # TIME went back: a schedule created now must not fire that occurrence again
        if self.model.removed_fired > self.model.now:
            moves += [self.schedule] * 8
        call = self.unschedule() if self.rng.random() < 0.06 else self.rng.choice(moves)()
        self.kept = [*self.kept[-12:], call]
        return call
