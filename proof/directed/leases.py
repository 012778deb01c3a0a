"""Simulated runs of workers, leases and the store: failovers, outages, deaths, zombies, an emptied store."""

from __future__ import annotations

from proof.checker.ghost import Violation
from proof.directed.stage import Stage
from relier.store.call import Durability


def same_fence_twice(stage: Stage) -> None:
    """A failover loses a claim and moves to a host whose clock is behind by exactly that much: two workers hold the
    task under the same fence, but only one of them really owns it. Only the worker id tells them apart.
    """
    world, ledger = stage.world, stage.ledger
    stage.run(ledger.register("A", 2000), ledger.register("B", 2000))
    stage.push(stage.submission("t"))
    images = world.backend.snapshot(), world.checker.snapshot()
    now, last = world.now, world.last_us
    (lost,) = stage.claim("A", 1)
    world.backend.restore(images[0])
    world.checker.restore(images[1], Durability.REPLICATED)
    world.now, world.last_us = now, last
    (held,) = stage.claim("B", 1)
    if lost.fence != held.fence:
        raise AssertionError(f"the schedule missed its point: {lost} {held}")
    stage.run(ledger.commit([(lost, None, ())]), ledger.commit([(held, None, ())]), ledger.commit([(held, None, ())]))


def own_zombie(stage: Stage) -> None:
    """A worker hands a task back and claims it again. Then its first attempt, which could not be stopped, finishes."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 2000))
    stage.push(stage.submission("t"))
    (first,) = stage.claim("A", 1)
    stage.run(ledger.release([first]))
    (second,) = stage.claim("A", 2)
    stage.run(
        ledger.checkpoint(second, 1, b"new"), ledger.checkpoint(first, 9, b"old"), ledger.step(first, "x", b"old")
    )
    stage.run(ledger.commit([(first, b"late", ())]), ledger.commit([(second, None, ())]))


def lost_acts(stage: Stage) -> None:
    """A frozen worker wakes up after it was declared lost, but before it was swept. Heartbeat, claim and register are
    all answered with `gone`, in any order."""
    ledger, boots = stage.ledger, stage.world.checker.memory.boots
    stage.run(ledger.register("A", 2000))
    stage.push(stage.submission("t"), stage.submission("u"))
    stage.claim("A", 1, want=2)
    for _ in range(20):
        if "A" not in boots or boots["A"].lost:
            break
        stage.wait(0.4)
        stage.run(ledger.revive(1, interval_ms=250))
    stage.run(ledger.beat("A", 2000), ledger.claim("A", 2, ["default"], 1), ledger.register("A", 2000))


def outage(stage: Stage) -> None:
    """Nobody reaches the store for five leases. The sweeper is back first, and the healthy worker within a quarter of a
    lease. That worker must still be registered and own its task.
    """
    ledger = stage.ledger
    stage.run(ledger.register("A", 2000))
    stage.push(stage.submission("t"))
    (lease,) = stage.claim("A", 1)
    stage.wait(10)
    stage.run(ledger.revive(interval_ms=500))
    stage.wait(0.5)
    stage.run(ledger.revive(interval_ms=500))
    if not stage.run(ledger.beat("A", 2000)).alive:
        raise Violation("healthy-survives-an-outage", "A was declared lost though it beat as soon as it could")
    stage.run(ledger.commit([(lease, None, ())]))


def rare_sweeps(stage: Stage) -> None:
    """A worker is dead, and sweeps come every 14 s. Other workers call in between: one with a longer lease sends
    heartbeats, and one dies at each start. Their calls cannot distinguish this pause from an outage. The dead worker is
    still found.
    """
    ledger, boots = stage.ledger, stage.world.checker.memory.boots
    stage.run(ledger.register("A", 2000), ledger.register("B", 60_000))
    stage.push(stage.submission("t"))
    stage.claim("A", 1)
    for n in range(4):
        stage.wait(5)
        stage.run(ledger.beat("B", 60_000))
        stage.wait(5)
        stage.run(ledger.register(f"C{n}", 2000))
        stage.wait(4)
        stage.run(ledger.revive(interval_ms=14_000))
    if "A" in boots:
        raise Violation("the-dead-are-found", f"A has been dead for 28 leases: {boots['A']}")


def _lose_host(stage: Stage, boot: str, *company: str) -> None:
    """Let a worker claim everything, and die with its host."""
    ledger = stage.ledger
    stage.run(ledger.register(boot, 2000))
    taken = {lease.task_id for lease in stage.claim(boot, 1, want=9)}
    if not taken >= set(company):
        raise AssertionError(f"the schedule missed its point: {boot} took {taken}, not {company}")
    stage.run(ledger.revive(worker_id=boot, cause="host down"))


def hosts_die(stage: Stage) -> None:
    """Hosts die under a harmless task, as often as a suspect may see that. Then the task fails by itself, which resets
    the count. Hosts continue to die until the task is dead. It can be replayed.
    """
    ledger, tasks = stage.ledger, ("t", "u")
    stage.run(ledger.register("Z", 60_000))
    stage.push(stage.submission("t", max_resurrections=1), stage.submission("u", max_resurrections=9))
    for n in range(4):
        _lose_host(stage, f"A{n}", *tasks)
    leases = {lease.task_id: lease for lease in stage.claim("Z", 1, want=9)}
    stage.run(ledger.retry(leases["t"], 0, "it failed"), ledger.retry(leases["u"], 0, "not for me", putback=True))
    for n in range(5):
        _lose_host(stage, f"B{n}", *tasks)
    dead = stage.world.backend.model.tasks["t"]
    if dead.state != "dead":
        raise Violation("everything-ends", f"t is {dead.state} after {dead.more} and goes round forever")
    stage.run(ledger.replay("t", dead.version, "again"))
    for n in range(4):
        _lose_host(stage, f"C{n}", *tasks)


def suspect_convicts_itself(stage: Stage) -> None:
    """Two suspects run in one worker, each in its own process. The worker reports the death of one process, which
    counts. Then the worker dies, which does not count. The death of a worker that ran only one task counts."""
    ledger = stage.ledger
    stage.run(ledger.register("Z", 60_000))
    stage.push(stage.submission("t", max_resurrections=1), stage.submission("u"))
    for n in range(2):
        _lose_host(stage, f"A{n}", "t", "u")
    lease = next(lease for lease in stage.claim("Z", 1, want=9) if lease.task_id == "t")
    stage.run(ledger.forfeit(lease, "exit 139"))
    stage.run(ledger.revive(worker_id="Z", cause="host down"))
    _lose_host(stage, "B", "t", "u")
    stage.run(ledger.register("C", 2000))
    stage.claim("C", 1)
    stage.run(ledger.revive(worker_id="C", cause="exit 137"))


def emptied(stage: Stage) -> None:
    """The store is emptied while a worker runs a task: its outcome is refused, and the birth mark has changed."""
    world, ledger = stage.world, stage.ledger
    early = ledger.open()
    mark = stage.run(early)
    stage.run(ledger.open(), ledger.open(mark), ledger.register("A", 2000))
    stage.push(stage.submission("t"))
    (lease,) = stage.claim("A", 1)
    world.apply(ledger.get("never"))
    stage.wait(1)
    world.backend.wipe()
    world.checker.wiped()
    for call in (ledger.beat("A", 2000), ledger.commit([(lease, b"r", ())]), ledger.get("t"), early, early):
        world.apply(call)
    stage.run(ledger.open(), ledger.register("B", 2000))
    stage.run(ledger.open(mark), ledger.open(mark), ledger.open("another"))
    stage.push(stage.submission("t"))
    (again,) = stage.claim("B", 1)
    stage.run(ledger.commit([(lease, b"late", ())]), ledger.commit([(again, b"r", ())]))
