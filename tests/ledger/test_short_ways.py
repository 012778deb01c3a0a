"""A single plain task takes a shortcut through submit, claim and commit. The result must be the same as without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relier.errors import StoreFullError
from relier.ledger import keys
from relier.ledger.records import Admission, ClaimStatus, Lease
from relier.states import State
from tests.support.ledger_world import World

LONG = Admission(max_depth=1_000_000)  # a limit that is never reached: this submit does not take the shortcut


def both(worlds: Any, short: Callable[[World], Any], long: Callable[[World], Any]) -> None:
    """Two namespaces at the same time. At the end, all their keys must be equal."""
    ways = []
    for way in (short, long):
        world: World = worlds()
        world.command("HSET", keys.spell(world.prefix, "meta"), "born", "mark")  # of each world another one
        world.join()
        way(world)
        ways.append(world.dump())
    assert ways[0] == ways[1]


@pytest.mark.parametrize("priority", [-9, 0, 9])
@pytest.mark.parametrize("before", [0, 2])
def test_the_fast_path_of_submit_equals_the_full_one(worlds: Any, priority: int, before: int) -> None:
    def submit(world: World, admission: Admission | None) -> None:
        for _ in range(before + 1):
            world.submit(world.new(priority=priority, payload=b"\x00\n"), admission=admission)

    both(worlds, lambda world: submit(world, None), lambda world: submit(world, LONG))


@pytest.mark.parametrize("tasks", [0, 1, 3])
def test_the_fast_path_of_claim_equals_the_full_one(worlds: Any, tasks: int) -> None:
    def claim(world: World, rung: bool) -> None:
        for _ in range(tasks):
            world.push()
        for _ in range(2):
            world.claim(want=1, rung=rung)

    both(worlds, lambda world: claim(world, False), lambda world: claim(world, True))


@pytest.mark.parametrize(
    "fields", [{"key": "k"}, {"nonce": "n"}, {"on_lost": "hold"}, {"expires_in_ms": 1}, {"expires_in_ms": 10_000}]
)
def test_the_fast_claim_handles_unusual_fields(worlds: Any, fields: dict[str, Any]) -> None:
    def claim(world: World, rung: bool) -> None:
        world.push(**fields)
        world.advance(5)
        world.push()
        world.claim(want=1, rung=rung)

    both(worlds, lambda world: claim(world, False), lambda world: claim(world, True))


@pytest.mark.parametrize("spoilt", ["broken", "", None])
def test_the_fast_path_of_claim_with_a_broken_record(worlds: Any, spoilt: str | None) -> None:
    def claim(world: World, rung: bool) -> None:
        task = world.push()
        world.delete(task)
        if spoilt is not None:
            world.command("SET", world.key("task", task), spoilt)
            world._known[task] = State.QUEUED
        world.advance(1)
        world.push()
        assert len(world.claim(want=1, rung=rung)) == 1

    both(worlds, lambda world: claim(world, False), lambda world: claim(world, True))


@pytest.mark.parametrize("result", [b"42", b"", None])
def test_the_fast_path_of_commit_equals_the_full_one(worlds: Any, result: bytes | None) -> None:
    def commit(world: World, *others: Lease) -> None:
        lease = world.start()
        world.run(world.ledger.commit([*[(other, None, ()) for other in others], (lease, result, ())]))

    both(worlds, commit, lambda world: commit(world, Lease("nothing", "1", "boot")))


def test_the_fast_claim_keeps_all_its_checks(clocked: World) -> None:
    def claim(seq: int, boot: str = "boot") -> Any:
        return clocked.run(clocked.ledger.claim(boot, seq, ["default"], 1, rung=False))

    tasks = [clocked.push() for _ in range(5)]
    first = claim(1)
    with clocked.unchanged():
        assert claim(1) == first, "a re-send gets the same"
    second = claim(2)
    with clocked.unchanged():
        assert claim(1).status is ClaimStatus.OLD
        assert claim(1, "nobody").status is ClaimStatus.GONE
    clocked.run(clocked.ledger.pause("default", 0))
    with clocked.unchanged():
        assert claim(3).tasks == ()
    clocked.run(clocked.ledger.resume("default", 1))
    third = claim(4)
    assert [one.tasks[0].record.id for one in (first, second, third)] == tasks[:3]


@pytest.mark.parametrize("removed", [False, True])
def test_the_fast_claim_refuses_a_lost_worker(clocked: World, removed: bool) -> None:
    clocked.start()
    clocked.push()
    clocked.revive(worker_id="boot", deepest=10 if removed else 0)
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.claim("boot", 2, ["default"], 1, rung=False)).status is ClaimStatus.GONE


def test_the_fast_commit_keeps_all_its_checks(clocked: World) -> None:
    lease = clocked.start()
    for wrong in (Lease(lease.task_id, str(int(lease.fence) + 1), "boot"), Lease(lease.task_id, lease.fence, "other")):
        assert clocked.commit(wrong).verdict == "stale"
    assert clocked.commit(lease).verdict == "ok"
    with clocked.unchanged():
        assert clocked.commit(lease).verdict == "repeat"


def test_the_fast_paths_on_a_full_store(boot: Any, worlds: Any, flavour: str) -> None:
    server = boot(flavour=flavour)
    world: World = worlds(server)
    world.join()
    world.push()
    server.command("CONFIG", "SET", "maxmemory", 100_000)
    (claimed,) = world.claim(want=1, rung=False)
    assert world.commit(claimed.lease, b"1").verdict == "ok"
    with world.unchanged(), pytest.raises(StoreFullError):
        world.push()
    assert world.submit(world.new(id=claimed.record.id))[0].status == "exists"
    server.command("CONFIG", "SET", "maxmemory", 0)
