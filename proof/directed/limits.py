"""Simulated runs of limits: which task waits for which, and the immediate effect of an operator's change."""

from __future__ import annotations

from proof.checker.ghost import Violation
from proof.directed.stage import Stage
from relier.ledger.limit_records import LimitNumbers, RunLimit

ONE, RATE = LimitNumbers(1), LimitNumbers(0, 60_000_000, 60_000_000)


def _limits(*keys: str, numbers: LimitNumbers = ONE) -> tuple[RunLimit, ...]:
    return tuple(RunLimit(key[0], key, numbers) for key in keys)


def limits_pass_on(stage: Stage) -> None:
    """The oldest of two lanes that wait for `k` also needs `l`, which is full. When a slot of `k` becomes free, the
    other lane takes it."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 20_000))
    stage.push(stage.submission("k1", limits=_limits("k")), stage.submission("l1", limits=_limits("l")))
    first, _ = stage.claim("A", 1, want=2)
    stage.push(stage.submission("both", limits=_limits("k", "l")), stage.submission("k2", limits=_limits("k")))
    stage.claim("A", 2, want=5)
    stage.run(ledger.commit([(first, None, ())]))
    (taken,) = stage.claim("A", 3, want=5)
    if taken.task_id != "k2":
        raise Violation("claims-what-waits", f"{taken.task_id} was handed over, not k2")


def limits_oldest_first(stage: Stage) -> None:
    """Three lanes wait for the one slot of `k`: it goes to the lane whose first task is the oldest."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 20_000))
    stage.push(stage.submission("first", limits=_limits("k")))
    (lease,) = stage.claim("A", 1)
    for other in "zyx":
        stage.push(stage.submission(other, limits=_limits("k", other)))
        stage.wait(0.1)
    for seq, expected in enumerate("zyx", 2):
        stage.run(ledger.commit([(lease, None, ())]))
        (lease,) = stage.claim("A", seq, want=5)
        if lease.task_id != expected:
            raise Violation("oldest-lane-first", f"{lease.task_id} was handed over, not {expected}")


def limits_in_two_queues(stage: Stage) -> None:
    """A limit spans two queues, and one queue is paused. Its tasks do not hold up those of the other queue."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 20_000))
    stage.push(*(stage.submission(f"a{i}", queue="a", limits=_limits("k")) for i in range(2)))
    stage.push(*(stage.submission(f"b{i}", queue="b", limits=_limits("k")) for i in range(2)))
    (first,) = stage.claim("A", 1, ["a", "b"], want=5)
    stage.run(ledger.pause("a", 0), ledger.commit([(first, None, ())]))
    for seq in (2, 3):
        (lease,) = stage.claim("A", seq, ["a", "b"], want=5)
        stage.run(ledger.commit([(lease, None, ())]))


def limits_set(stage: Stage) -> None:
    """An operator raises a limit, sets one by name and by key, and lifts a rate."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 20_000))
    stage.push(*(stage.submission(f"t{i}", limits=_limits("k")) for i in range(4)))
    stage.push(*(stage.submission(f"r{i}", queue="b", limits=_limits("r", numbers=RATE)) for i in range(2)))
    stage.claim("A", 1, ["default", "b"], want=9)
    stage.run(ledger.limit("k", 0, LimitNumbers(3)))
    stage.claim("A", 2, want=9)
    stage.run(ledger.limit("r", 0, LimitNumbers(0)), ledger.promote())
    (lease,) = stage.claim("A", 3, ["b"], want=9)
    stage.run(ledger.commit([(lease, None, ())]))
    stage.run(ledger.limit("tenant:1", 0, LimitNumbers(1)), ledger.limit("tenant", 0, LimitNumbers(2)))
    tenant = (RunLimit("tenant", "tenant:1", LimitNumbers(5)),)
    stage.push(*(stage.submission(f"n{i}", queue="c", limits=tenant) for i in range(3)))
    stage.claim("A", 4, ["c"], want=9)
