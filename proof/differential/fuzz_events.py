"""Reads of events from right and wrong positions, old and new."""

from __future__ import annotations

import random
from typing import Any

from proof.model.model import Model
from relier.ledger.events.records import TOPICS
from relier.ledger.ledger import Ledger
from relier.settings import Settings
from relier.store.call import Call


class EventFuzzer:
    """Make random reads of events, also from positions of entries that were trimmed."""

    def __init__(self, rng: random.Random, model: Model) -> None:
        self.rng = rng
        self.model = model
        self.ledger = Ledger(Settings(namespace="differential"))
        self.kept: dict[str, list[str]] = {topic: ["0-0"] for topic in TOPICS}

    def pick(self) -> Call[Any]:
        rng, topic = self.rng, self.rng.choice((*TOPICS, "tasks", "tasks"))
        if rng.random() < 0.05:
            return self.ledger.watch()
        stream, number = self.model.streams.get(topic, []), self.model.event_numbers.get(topic, 0)
        self.kept[topic] += [entry.id for entry in stream[-2:]]
        wrong = (
            f"{max(0, number - rng.randrange(90))}-{rng.choice((0, 0, 1, self.model.time_us))}",
            f"{number + 3}-{rng.choice((0, 7))}",
        )
        position = rng.choice(("start", "now", rng.choice(self.kept[topic]), rng.choice(self.kept[topic]), *wrong))
        return self.ledger.events(topic, position, most=rng.choice((1, 3, 50)), again=rng.random() < 0.3)
