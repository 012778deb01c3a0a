"""A stream of damage by hand and of repairs, which also look at subjects that do not exist."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from proof.model.model import Model
from proof.simulator.damage import GRAVE, KINDS, Damage, some_damage, subjects_of
from proof.simulator.world import ledger
from relier.ledger.moves.repair import Subject
from relier.store.call import Call

NOWHERE = [Subject(kind, b"nowhere") for kind in ("task", "owned", "batch", "lane", "history", "steps", "results")]
NOBODY = [Subject("due", b"", b"nobody"), Subject("slots", b"api", b"nobody"), Subject("members", b"g", b"nobody")]


class RepairFuzzer:
    """Damages one thing at a time, and repairs everything before the next call."""

    def __init__(self, rng: random.Random, model: Model) -> None:
        self.rng = rng
        self.model = model
        self.ledger = ledger("differential")

    def pick(self) -> Iterator[Call[Any] | Damage]:
        roll = self.rng.random()
        if roll < 0.15:
            yield self.ledger.reconcile()
        elif roll < 0.3:
            some = [*self.rng.sample(subjects_of(self.model), min(5, len(subjects_of(self.model)))), *NOWHERE, *NOBODY]
            begin = self.rng.choice((self.model.repair_turn[0], "5"))
            yield self.ledger.reconcile(some, begin, self.rng.choice(("0", "9")))
        elif not self.model.full:
            damage = some_damage(self.rng, self.model, (*KINDS, *GRAVE))
            if damage is not None:
                yield damage
            everything = subjects_of(self.model)
            self.rng.shuffle(everything)
            everything.sort(key=lambda subject: subject.kind == "waiting")  # counted once the lanes are in order
            yield self.ledger.reconcile(everything, self.model.repair_turn[0], "7")
