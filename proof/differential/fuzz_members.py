"""A stream of calls of nodes of several roles, and of operators who give them orders."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from proof.model.model import Model
from proof.simulator.world import ledger
from relier.ledger.nodes import Orders, Role, read_orders
from relier.store.call import Call

HELPERS = ("r1", "r2", "r3")
WORKERS = ("n1", "n2")
LEASES = (1_000, 1_601, 3_000)


class MemberFuzzer:
    """Valid and invalid calls on a few nodes. Their workers claim nothing, so they are removed when a sweep finds
    them."""

    def __init__(self, rng: random.Random, model: Model) -> None:
        self.rng = rng
        self.model = model
        self.ledger = ledger("differential")
        self.kept: list[Call[Any]] = []

    def some_node(self) -> str:
        return self.rng.choice((*HELPERS, *HELPERS, *WORKERS, "never"))

    def register(self) -> Call[Any]:
        node = self.some_node()
        usual = Role.RELAY if node in HELPERS else Role.WORKER
        role = self.rng.choice(list(Role)) if self.rng.random() < 0.15 else usual
        orders = Orders(3, self.rng.random() < 0.5, True, self.rng.choice(("", "DEBUG")))
        carried = orders if self.rng.random() < 0.3 else None
        return self.ledger.register(node, self.rng.choice(LEASES), "{}", role, carried)

    def beat(self) -> Call[Any]:
        return self.ledger.beat(self.some_node(), self.rng.choice(LEASES), "", self.rng.choice(("", '{"n":1}')))

    def retire(self) -> Call[Any]:
        return self.ledger.retire(self.some_node())

    def order(self) -> Call[Any]:
        node = self.some_node()
        boot = self.model.boots.get(node)
        seen = read_orders(boot.order) if boot is not None else None
        version = 0 if seen is None else seen.version
        version += self.rng.choice((0, 0, 0, 1)) if version else 0
        draining, stopping = self.rng.random() < 0.5, self.rng.random() < 0.2
        return self.ledger.order(node, Orders(version, draining, stopping, self.rng.choice(("", "INFO"))))

    def claim(self) -> Call[Any]:
        return self.ledger.claim(self.rng.choice(HELPERS), 1, ("a",), self.rng.choice((1, 2)), rung=False)

    def sweep(self) -> Call[Any]:
        return self.ledger.revive(interval_ms=self.rng.choice((100, 500, 4_000)))

    def again(self) -> Call[Any]:
        return self.rng.choice(self.kept) if self.kept else self.beat()

    def pick(self) -> Call[Any]:
        moves: tuple[Callable[[], Call[Any]], ...] = (
            *(self.register, self.beat, self.beat, self.beat, self.order, self.order, self.claim),
            *(self.sweep, self.sweep, self.retire, self.again),
        )
        call = self.rng.choice(moves)()
        self.kept = [*self.kept[-10:], call]
        return call
