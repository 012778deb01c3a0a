"""Reads of outcomes: of minutes and hours, from the beginning and from a cursor."""

from __future__ import annotations

import random
from typing import Any

from proof.model.model import Model
from relier.ledger.ledger import Ledger
from relier.ledger.outcomes.records import Unit
from relier.settings import Settings
from relier.store.call import Call


class OutcomeFuzzer:
    """Make random reads of outcomes."""

    def __init__(self, rng: random.Random, model: Model) -> None:
        self.rng = rng
        self.model = model
        self.ledger = Ledger(Settings(namespace="differential"))

    def pick(self) -> Call[Any]:
        unit: Unit = self.rng.choice(("minute", "hour"))
        present = self.model.time_us // (60_000_000 if unit == "minute" else 3_600_000_000)
        cursor = self.rng.choice(("", "", str(present), str(present - 2), str(present + 1)))
        return self.ledger.outcomes(unit, self.rng.choice((0, 1, 5, 400)), cursor)
