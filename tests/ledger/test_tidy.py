"""Queues that nobody uses leave no data, and come back with the next task."""

from __future__ import annotations

from typing import Any

import pytest

from relier.ledger.ledger import Ledger
from relier.ledger.pages import read_stats
from tests.support.ledger_world import DAY, HOUR, World


def reap(world: World) -> None:
    world.run(world.ledger.reap())


def queues(world: World) -> set[str]:
    return {queue.queue for queue in read_stats(world.run, world.ledger).queues}


def traces(world: World) -> set[str]:
    """Return the keys and entries that name a queue."""
    books = world.dump()
    found = {name for name in books if name.startswith(("q:", "b:"))}
    for name in ("queues", "idle", "pauses"):
        found |= {f"{name} {entry!r}" for entry in books.get(name, ("", (), False))[1]}
    return found


def unused(world: World, ms: int = HOUR) -> None:
    """Sweep twice, that far apart, with no use of the queue in between."""
    reap(world)
    world.advance(ms)
    reap(world)


def test_an_unused_queue_is_removed_with_its_doorbell_and_pause_version(clocked: World) -> None:
    for n in range(3):
        clocked.cancel(clocked.push(queue=f"q{n}"))
    clocked.run(clocked.ledger.pause("q0", 0))
    clocked.run(clocked.ledger.resume("q0", 1))
    assert {"b:q0", "b:q1", "b:q2"} <= traces(clocked)
    unused(clocked, HOUR - 1)
    assert queues(clocked) == {"q0", "q1", "q2"}
    clocked.advance(1)
    reap(clocked)
    assert traces(clocked) == set()


@pytest.mark.parametrize("why", ["a task waits", "it is paused"])
def test_a_queue_in_use_is_not_removed(clocked: World, why: str) -> None:
    if why == "a task waits":
        clocked.push(queue="q")
    else:
        clocked.run(clocked.ledger.pause("q", 0))
    unused(clocked, DAY)
    assert queues(clocked) == {"q"}
    assert clocked.members("idle") == []


def test_a_task_in_a_queue_restarts_its_unused_time(clocked: World) -> None:
    clocked.commit(clocked.start(queue="q"))
    unused(clocked, HOUR - 1)
    task = clocked.push(queue="q")
    reap(clocked)
    clocked.cancel(task)
    unused(clocked, HOUR - 1)
    assert queues(clocked) == {"q"}


def later(world: World) -> None:
    world.push(queue="q", delay_ms=1)
    world.advance(1)
    world.run(world.ledger.promote())


COMES_BACK: dict[str, Any] = {
    "push": lambda world: world.push(queue="q"),
    "bulk": lambda world: world.submit(world.new(queue="q"), world.new(queue="q")),
    "promote": later,
}


@pytest.mark.parametrize("how", COMES_BACK)
def test_a_removed_queue_returns_with_the_next_task_and_rings(clocked: World, how: str) -> None:
    clocked.cancel(clocked.push(queue="q"))
    unused(clocked)
    assert queues(clocked) == set()
    COMES_BACK[how](clocked)
    assert queues(clocked) == {"q"}
    assert clocked.command("LLEN", clocked.key("bell", "q")) == 1
    clocked.join("later")
    assert clocked.claim("later", queues=["q"])


def test_a_revived_task_finds_its_queue(clocked: World) -> None:
    clocked.start(queue="q")
    unused(clocked)
    assert queues(clocked) == set()
    clocked.lose()
    assert queues(clocked) == {"q"}


def test_many_queues_leave_in_several_calls(clocked: World) -> None:
    many = [f"q{n}" for n in range(700)]
    clocked.command("SADD", clocked.key("queues"), *many)
    reaps = 0
    while clocked.command("ZCARD", clocked.key("idle")) < len(many):
        reap(clocked)
        reaps += 1
    assert reaps > 3
    clocked.advance(HOUR)
    while clocked.command("SCARD", clocked.key("queues")):
        reap(clocked)
        reaps -= 1
    assert reaps <= 3
    assert traces(clocked) == set()


def test_stats_of_many_queues_and_workers_come_in_pages(clocked: World) -> None:
    names = {f"q{n}" for n in range(700)}
    for chunk in Ledger.chunks(clocked.new(queue=name) for name in names):
        clocked.submit(*chunk)
    for n in range(300):
        clocked.store.run(clocked.ledger.register(f"boot{n}", 5000 + n))
    page = clocked.run(clocked.ledger.stats())
    assert page.cursor
    assert len(page.queues) < 400
    whole = read_stats(clocked.store.run, clocked.ledger)
    assert whole.pages > 1
    assert {queue.queue: queue.ready for queue in whole.queues} == dict.fromkeys(names, 1)
    assert {worker.node_id for worker in whole.workers} == {"boot", *(f"boot{n}" for n in range(300))}
    assert list(whole.workers) == sorted(whole.workers, key=lambda worker: (worker.lease_left_ms, worker.node_id))
    assert len(whole.queues) == 700, "each once"
