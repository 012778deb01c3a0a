"""Nodes that own no tasks: relays, schedulers and similar, next to workers with longer leases; and an operator who
gives orders to any node."""

from __future__ import annotations

from typing import Any

from proof.simulator.world import LOST, MS, SECOND, Node, Steps, World, ask
from relier.errors import RelierError
from relier.ledger.nodes import Orders, Role, read_orders
from relier.ledger.records import Beat

ROLES = (Role.RELAY, Role.SCHEDULER, Role.RESURRECTOR, Role.DASHBOARD)


class Helper:
    """One process with a role other than worker. It uses one id after another until it is killed or told to stop."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.node = Node(name)
        self.role = world.rng.choice(ROLES)
        self.lease = world.rng.choice(world.profile.helper_leases)
        self.boot = ""
        self.boots = 0
        self.gone = True
        self.leaving = False
        self.orders: Orders | None = None

    def main(self) -> Steps:
        world = self.world
        while not self.leaving:
            self.boots += 1
            self.boot = f"{self.name}.{self.boots}"
            joined: Any = LOST
            while joined is LOST or isinstance(joined, RelierError):
                call = world.ledger.register(self.boot, self.lease, "{}", self.role, self.orders)
                joined = yield from ask(call, 3)
            if joined:
                self.gone = False
                yield from self.beats()
        if not self.gone and world.rng.random() < 0.5:  # otherwise it dies without a call to the ledger
            yield from ask(world.ledger.retire(self.boot), 5)
        self.gone = True

    def beats(self) -> Steps:
        """Send heartbeats as outbox relays do: soon again after a failed one."""
        world, rng = self.world, self.world.rng
        yield self.lease * MS // 4
        while not self.leaving:
            answer = yield world.ledger.beat(self.boot, self.lease, report=rng.choice(("", '{"rows": 1}')))
            if isinstance(answer, Beat) and not answer.alive:
                self.gone = True
                return
            if isinstance(answer, Beat):
                self.orders = answer.orders or self.orders
                if rng.random() < 0.05:  # a helper must not claim: the ledger refuses
                    yield world.ledger.claim(self.boot, 1, ("a",), 1)
                yield self.lease * MS // 4
            else:
                yield self.lease * MS // 16


def commander(world: World) -> Steps:
    """Read the nodes, and order some to drain, to resume or to log more, sometimes based on an old read."""
    rng = world.rng
    while True:
        yield rng.randint(100, 1200) * MS
        if world.healed:
            return
        seen = sorted((name, boot.role, boot.order) for name, boot in world.backend.model.boots.items())
        if not seen:
            continue
        name, role, order = rng.choice(seen)
        if rng.random() < 0.3:
            yield rng.randint(1, SECOND)
        before = read_orders(order) or Orders()
        # nobody would resume a worker that starts again under a new id
        draining = role != "worker" and rng.random() < 0.5
        wanted = Orders(before.version, draining, False, rng.choice(("", "DEBUG")))
        yield from ask(world.ledger.order(name, wanted), rng.choice((1, 3)))
