"""Simulated runs of the locks of user code."""

from __future__ import annotations

from proof.directed.stage import Stage
from relier.store.call import result_or_error


def lock_of_the_lost(stage: Stage) -> None:
    """A worker dies while it holds a lock: the next one gets it at once. If the dead worker wakes up, it can neither
    take a lock nor release the old one.
    """
    ledger = stage.ledger
    stage.run(ledger.register("A", 2000), ledger.register("B", 2000))
    stage.push(stage.submission("t"), stage.submission("u"), stage.submission("v"))
    first, second, _ = stage.claim("A", 1, want=3)
    stage.run(ledger.lock("k", "one", 60_000, first), ledger.lock("k", "two", 60_000, "web"))
    stage.run(ledger.revive(1, worker_id="A"))  # declared lost, but not yet swept
    stage.run(ledger.lock("k", "three", 60_000, "web"), ledger.unlock("k", "one"), ledger.renew("k", "one", 60_000))
    for lease in (first, second):
        call = ledger.lock("l", f"late {lease.task_id}".replace(" ", "."), 60_000, lease)
        result_or_error(call, stage.world.apply(call))
        stage.run(ledger.revive(worker_id="A"))  # now a sweep has removed it
    stage.run(ledger.conclude("k", "three", 1000, b"r"), ledger.lock("k", "four", 60_000, "web"))
    stage.wait(1)
    stage.run(ledger.lock("k", "five", 60_000, "web"))


def lock_of_an_earlier_attempt(stage: Stage) -> None:
    """A worker hands a task back while it holds a lock, and claims it again: the later attempt holds the lock at once,
    and alone. Another task of the same worker waits."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 2000))
    stage.push(stage.submission("t"), stage.submission("u"))
    first, other = stage.claim("A", 1, want=2)
    stage.run(ledger.lock("k", "one", 60_000, first), ledger.lock("k", "same", 60_000, first))
    stage.run(ledger.lock("k", "other", 60_000, other), ledger.release([first]))
    (second,) = stage.claim("A", 2)
    stage.run(ledger.lock("k", "two", 60_000, second), ledger.lock("k", "late", 60_000, first))
    stage.run(ledger.conclude("k", "one", 60_000, b"late"), ledger.conclude("k", "two", 60_000, b"r"))


def lock_repeated(stage: Stage) -> None:
    """Every call in the life of a lock is repeated at once, and again much later."""
    ledger = stage.ledger
    take, go_on = ledger.lock("k", "one", 1000, "web"), ledger.renew("k", "one", 1000)
    done = ledger.conclude("k", "one", 1000, b"r")
    stage.run(take, take, go_on, go_on, done, done, ledger.conclude("k", "one", 1000, b"s"), take, go_on)
    stage.run(ledger.unlock("k", "one"), ledger.lock("k", "two", 1000, "web"))
    stage.wait(2)
    stage.run(done, ledger.lock("k", "two", 1000, "web"), done, ledger.unlock("k", "one"), ledger.unlock("k", "two"))
    stage.run(ledger.unlock("k", "two"), go_on, done, take)
