"""Simulated runs of nodes with several roles: short leases of helpers, long leases of workers, and orders."""

from __future__ import annotations

from proof.checker.ghost import Violation
from proof.directed.stage import Stage
from relier.errors import IllegalMoveError, VersionConflictError
from relier.ledger.nodes import Orders, Role


def _join(stage: Stage, *helpers: str, lease: int = 3000) -> None:
    for name in helpers:
        stage.run(stage.ledger.register(name, lease, "{}", Role.RELAY))


def outage_of_helpers(stage: Stage) -> None:
    """Nobody reaches the store for 20 s: far less than half the worker's lease, and far more than a relay's lease.
    Whether a worker or a sweeper is back first, no relay is declared lost.
    """
    ledger = stage.ledger
    stage.run(ledger.register("A", 60_000))
    _join(stage, "r1", "r2")
    for first in (ledger.beat("A", 60_000), ledger.revive(interval_ms=500), ledger.revive(worker_id="none")):
        stage.wait(0.5)
        for relay in ("r1", "r2"):
            stage.run(ledger.beat(relay, 3000))
        stage.wait(20)
        stage.run(first)
        for _ in range(4):
            stage.wait(0.15)
            stage.run(ledger.revive(interval_ms=500))
        for relay in ("r1", "r2"):
            if not stage.run(ledger.beat(relay, 3000)).alive:
                raise Violation("healthy-survives-an-outage", f"{relay} was declared lost though it beat as it could")


def slow_sweep_after_an_outage(stage: Stage) -> None:
    """A sweeper that comes every 14 s cannot distinguish an outage of 20 s from its own pause, so the outage costs a
    relay half its lease.
    """
    ledger = stage.ledger
    stage.run(ledger.register("A", 60_000))
    _join(stage, "r")
    stage.wait(20)
    stage.run(ledger.revive(interval_ms=14_000))
    stage.wait(0.3)
    if not stage.run(ledger.beat("r", 3000)).alive:
        raise Violation("healthy-survives-an-outage", "r was declared lost by one slow sweep")


def dead_helper(stage: Stage) -> None:
    """A relay is dead. Sweeps find it within its lease and two sweeps, however long the workers' leases are. Workers'
    heartbeats do not give it extra time."""
    ledger, boots = stage.ledger, stage.world.checker.memory.boots
    stage.run(ledger.register("A", 60_000))
    _join(stage, "r")
    for n in range(8):
        stage.wait(0.5)
        stage.run(ledger.revive(interval_ms=500))
        if n % 4 == 0:
            stage.run(ledger.beat("A", 60_000))
    if "r" in boots:
        raise Violation("the-dead-are-found", f"r has been dead for 4 s: {boots['r']}")
    if "A" not in boots:
        raise Violation("live-lease-not-stolen", "A left with it")


def dead_helper_and_rare_sweeps(stage: Stage) -> None:
    """A sweep comes every 14 s, and in between a worker sends heartbeats: the pauses give no extra time, and the dead
    relay is removed."""
    ledger, boots = stage.ledger, stage.world.checker.memory.boots
    stage.run(ledger.register("A", 60_000))
    _join(stage, "r")
    for _ in range(4):
        stage.wait(7)
        stage.run(ledger.beat("A", 60_000))
        stage.wait(7)
        stage.run(ledger.revive(interval_ms=14_000))
    if "r" in boots:
        raise Violation("the-dead-are-found", f"r has been dead for 18 of its leases: {boots['r']}")


def helpers_alone(stage: Stage) -> None:
    """There is no worker. A relay stays registered, and one that died is removed."""
    ledger, boots = stage.ledger, stage.world.checker.memory.boots
    _join(stage, "r1", "r2")
    for _ in range(6):
        stage.wait(0.7)
        stage.run(ledger.beat("r1", 3000), ledger.revive(interval_ms=700))
    if sorted(boots) != ["r1"]:
        raise Violation("the-dead-are-found", f"{sorted(boots)} are members, only r1 lives")
    stage.run(ledger.retire("r1"))
    if stage.world.backend.model.helper_clock is not None:
        raise Violation("nothing-leaks", "the helpers' clock outlives the last helper")


def helper_beside_a_worker(stage: Stage) -> None:
    """A relay registers, sends heartbeats and retires next to a worker with a lease of 5 s: the worker's clamp stays
    2.5 s, and its clock does not move."""
    ledger, model = stage.ledger, stage.world.backend.model
    stage.run(ledger.register("A", 5000))
    _join(stage, "r")
    stage.wait(1)
    before = model.clock
    stage.run(ledger.beat("r", 3000), ledger.register("r", 3000, "{}", Role.RELAY), ledger.retire("r"))
    if model.clock != before or before is None or before[2] != 2500:
        raise Violation("helpers-leave-the-workers-clock", f"{before} became {model.clock}")


def role_is_kept(stage: Stage) -> None:
    """A node id keeps its role, and only workers may claim."""
    ledger = stage.ledger
    _join(stage, "r")
    stage.run(ledger.register("A", 5000))
    stage.push(stage.submission("t"))
    for node, role in (("r", Role.WORKER), ("A", Role.RELAY), ("r", Role.SCHEDULER)):
        if stage.run(ledger.register(node, 5000, "{}", role)):
            raise Violation("roles-are-kept", f"{node} became a {role}")
    try:
        stage.claim("r", 1)
    except IllegalMoveError:
        stage.claim("A", 1)
        return
    raise Violation("only-workers-claim", "a relay claimed")


def ordered_by_two(stage: Stage) -> None:
    """Two operators see the same orders. One drains a node; the other, who did not see that, is refused. The node gets
    the order with each heartbeat, keeps it under a new id, and is resumed there."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 5000))
    drained = stage.run(ledger.order("A", Orders(0, draining=True, log_level="DEBUG")))
    stage.run(ledger.order("A", Orders(0, draining=True, log_level="DEBUG")), ledger.beat("A", 5000))
    try:
        stage.run(ledger.order("A", Orders(0, stopping=True)))
    except VersionConflictError:
        stage.run(ledger.beat("A", 5000), ledger.revive(worker_id="A", cause="exit 137"))
    else:
        raise Violation("orders-see-what-they-change", "an operator overwrote orders unseen")
    stage.run(ledger.register("B", 5000, orders=drained), ledger.register("B", 5000, orders=drained))
    told = stage.run(ledger.beat("B", 5000)).orders
    if told is None or not told.draining or told.log_level != "DEBUG":
        raise Violation("orders-reach-their-node", f"B carries {told}")
    stage.run(ledger.order("B", Orders(told.version)), ledger.beat("B", 5000))
    stage.run(ledger.register("B", 5000, orders=drained), ledger.beat("B", 5000))  # sent again, and late
    try:
        stage.run(ledger.order("A", Orders(0, draining=True)))
    except IllegalMoveError:
        return
    raise Violation("orders-see-what-they-change", "a node that is gone took orders")


def members_when_full(stage: Stage) -> None:
    """In a full store, nodes can register, send heartbeats, get orders and retire."""
    ledger, backend = stage.ledger, stage.world.backend
    backend.full = True
    _join(stage, "r")
    stage.run(ledger.register("A", 5000), ledger.beat("r", 3000), ledger.order("r", Orders(0, draining=True)))
    stage.run(ledger.beat("r", 3000, report="{}"), ledger.revive(interval_ms=500), ledger.retire("r"))
    backend.full = False
