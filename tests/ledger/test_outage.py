"""The store freezes, or its TIME jumps: no healthy worker is declared dead because of that, and a dead one still is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from relier.states import State
from tests.support.ledger_world import HOUR, World
from tests.support.servers import Server, wait_until

Boot = Callable[..., Server]
LEASE = 5000
BEAT = LEASE // 4


def crew(world: World, n: int = 3) -> list[str]:
    """Register workers, each with a task."""
    boots = [world.join(f"worker{k}", LEASE) for k in range(n)]
    for boot in boots:
        world.start(boot, queue=boot)
    return boots


def live(world: World, boots: list[str], ms: int) -> int:
    """Let all workers send heartbeats and sweep for a while. Return how many tasks were revived."""
    revived = 0
    for step in range(0, ms, 250):
        world.advance(250)
        if step % BEAT == 0:
            for boot in boots:
                world.beat(boot, LEASE)
        revived += len(world.revive(interval_ms=500).outcomes)
    return revived


@pytest.mark.parametrize("outage", [2600, 4999, 5000, 5001, 12_000, HOUR, 72 * HOUR])
@pytest.mark.parametrize("first", ["sweeper", "worker"])
def test_an_outage_costs_no_worker_its_lease(worlds: Any, outage: int, first: str) -> None:
    world: World = worlds()
    boots = crew(world)
    assert live(world, boots, 10_000) == 0
    world.advance(outage)
    if first == "sweeper":
        assert world.revive(interval_ms=500).outcomes == ()
    else:
        assert world.beat(boots[0], LEASE).alive
    assert live(world, boots, 20_000) == 0
    assert all(world.beat(boot, LEASE).alive for boot in boots)


def test_workers_may_take_a_lease_to_come_back_after_an_outage(worlds: Any) -> None:
    world: World = worlds()
    boots = crew(world)
    live(world, boots, 5000)
    world.advance(60_000)
    for _ in range(9):
        assert world.revive(interval_ms=500).outcomes == ()
        world.advance(500)
    assert all(world.beat(boot, LEASE).alive for boot in boots)


def test_several_outages_in_a_row_cost_no_lease(worlds: Any) -> None:
    world: World = worlds()
    boots = crew(world)
    for _ in range(10):
        world.advance(60_000)
        assert live(world, boots, BEAT) == 0
    assert all(world.beat(boot, LEASE).alive for boot in boots)


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_clock_jump_costs_no_worker_its_lease(worlds: Any, jump: int) -> None:
    world: World = worlds()
    boots = crew(world)
    assert live(world, boots, 10_000) == 0
    world.advance(jump)
    assert live(world, boots, 20_000) == 0
    assert all(world.beat(boot, LEASE).alive for boot in boots)


@pytest.mark.parametrize("jump", [0, HOUR, -HOUR, 12_000])
def test_a_dead_worker_is_found_also_after_a_jump(worlds: Any, jump: int) -> None:
    world: World = worlds()
    boots = crew(world)
    live(world, boots, 5000)
    world.advance(jump)
    dead, *alive = boots
    assert live(world, alive, 3 * LEASE) == 1
    assert not world.beat(dead, LEASE).alive
    assert world.state("task000") is State.QUEUED


def test_a_dead_worker_is_found_within_lease_and_sweep(worlds: Any) -> None:
    world: World = worlds()
    boots = crew(world)
    live(world, boots, 5000)
    for boot in boots:
        world.beat(boot, LEASE)
    died, revived = world.now, 0
    while not revived:
        revived = live(world, boots[1:], 250)
        assert world.now - died <= LEASE + 500
    assert world.now - died >= LEASE, "and no live lease is stolen"


def test_when_all_workers_are_dead_a_sweeper_alone_finds_them(worlds: Any) -> None:
    world: World = worlds()
    crew(world)
    revived, begun = 0, world.now
    while revived < 3:
        world.advance(500)
        revived += len(world.revive(interval_ms=500).outcomes)
        assert world.now - begun <= LEASE + 1000
    assert world.members("boots") == []


def test_a_slow_sweeper_declares_no_worker_with_a_short_lease_lost(worlds: Any) -> None:
    """Sweeps come every 2 s, leases last 1 s, and the outage lasts 1.9 s. The workers send heartbeats before and after
    it."""
    world: World = worlds()
    world.join("quick", 1000)
    world.start("quick")
    for _ in range(5):
        world.advance(1900)
        assert world.revive(interval_ms=2000).outcomes == ()
        assert world.beat("quick", 1000).alive
        for _ in range(4):
            world.advance(250)
            assert world.beat("quick", 1000).alive


def test_a_slow_sweeper_alone_finds_an_expired_short_lease(worlds: Any) -> None:
    world: World = worlds()
    world.join("quick", 1000)
    world.start("quick")
    revived = 0
    for _ in range(3):
        world.advance(2000)
        revived += len(world.revive(interval_ms=2000).outcomes)
    assert revived == 1


def test_heartbeats_of_a_long_lease_do_not_hide_a_dead_worker(worlds: Any) -> None:
    """The short lease has run out. The worker with the long lease sends a heartbeat every 15 s, with one sweep in
    between."""
    world: World = worlds()
    world.join("short", 1000)
    world.join("long", 60_000)
    world.start("short")
    revived = 0
    for _ in range(4):
        world.advance(14_000)
        revived += len(world.revive(interval_ms=14_000).outcomes)
        world.advance(1000)
        assert world.beat("long", 60_000).alive
    assert revived == 1


def test_an_outage_first_noticed_by_a_long_lease_does_not_shorten_a_short_one(worlds: Any) -> None:
    """For the worker with the long lease, 10 s are no outage. The one with the short lease keeps what was left of its
    lease."""
    world: World = worlds()
    world.join("short", 1000)
    world.join("long", 60_000)
    world.start("short")
    world.advance(250)
    world.revive(interval_ms=500)
    world.advance(10_000)
    assert world.beat("long", 60_000).alive
    world.advance(490)
    assert world.revive(interval_ms=500).outcomes == ()
    world.advance(250)
    assert world.revive(interval_ms=500).outcomes == ()
    assert world.beat("short", 1000).alive


@pytest.mark.parametrize("comes", ["worker", "supervisor"])
def test_workers_that_come_and_go_do_not_hide_a_dead_worker(worlds: Any, comes: str) -> None:
    """A worker that dies right after its start is started every 10 s, and sweeps come every 14 s."""
    world: World = worlds()
    world.join("dead", LEASE)
    world.start("dead")
    revived: list[str] = []
    for at in range(1000, 71_000, 1000):
        world.advance(1000)
        if at % 10_000 == 0:
            world.join(f"at{at}", LEASE)
            if comes == "supervisor":
                world.revive(worker_id=f"at{at}", cause="exit 1")
        if at % 14_000 == 0:
            revived += [task for task, _ in world.revive(interval_ms=14_000).outcomes]
    assert revived == ["task000"]


def test_the_shortest_lease_expires(worlds: Any) -> None:
    world: World = worlds()
    world.join("blink", 1)
    world.start("blink")
    world.advance(500)
    assert len(world.revive(interval_ms=500).outcomes) == 1


@pytest.mark.parametrize("jump", [2000, HOUR])
def test_a_clock_jump_does_not_shorten_a_long_lease_beside_a_short_one(worlds: Any, jump: int) -> None:
    """A supervisor's sweep is the first call after the jump. The long lease is then counted in full."""
    world: World = worlds()
    world.join("short", 1600)
    world.join("long", 3000)
    world.start("long")
    world.advance(jump)
    world.revive(worker_id="short", interval_ms=500)
    for _ in range(11):
        world.advance(250)
        assert world.revive(interval_ms=250).outcomes == ()
    assert world.beat("long", 3000).alive


def test_a_really_frozen_store_costs_no_lease(boot: Boot, worlds: Any, flavour: str) -> None:
    """Leases last 300 ms on the server's own TIME. The server is frozen for a second: 0 revivals. Then one worker
    really stops."""
    server = boot(flavour=flavour)
    world: World = worlds(server, clocked=False, redis_deadline=10.0, redis_read_timeout=5.0, redis_retries=20)
    lease = 300
    for name in ("one", "two"):
        world.join(name, lease)
        world.start(name, queue=name)

    def beat_and_sweep(*names: str) -> int:
        for name in names:
            world.beat(name, lease)
        return len(world.revive(interval_ms=50).outcomes)

    def work(seconds: float, *names: str) -> int:
        revived, until = 0, time.monotonic() + seconds

        def tick() -> bool:
            nonlocal revived
            revived += beat_and_sweep(*names)
            return time.monotonic() >= until

        wait_until(tick, seconds + 10)
        return revived

    assert work(0.5, "one", "two") == 0
    server.freeze()
    thawing = time.monotonic() + 1.0
    wait_until(lambda: time.monotonic() >= thawing)
    server.thaw()
    assert work(1.0, "one", "two") == 0
    assert all(world.beat(name, lease).alive for name in ("one", "two"))
    assert wait_until(lambda: beat_and_sweep("two"), what="the revival of the worker that stopped") == 1
    assert not world.beat("one", lease).alive
    assert world.beat("two", lease).alive
