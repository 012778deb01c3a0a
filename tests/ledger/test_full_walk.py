"""Every script on a store at its memory limit: it works, or is one of the few that bring new data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from relier.errors import StoreFullError
from relier.ledger.batches.membership import BatchHeader, Member, packed_plan
from relier.ledger.ledger import load_scripts
from relier.ledger.limit_records import LimitNumbers
from relier.ledger.moves.repair import Subject
from relier.ledger.nodes import Orders, Role
from relier.ledger.records import Join, Lease
from relier.ledger.schedule_records import ScheduleState
from relier.store import Call
from tests.ledger.test_full import FullWorld
from tests.ledger.test_full import small as small  # a fixture
from tests.support.ledger_world import DAY, World

Calls = Sequence[Call[Any]]


def leases(world: World, n: int) -> list[Lease]:
    for _ in range(n):
        world.push(key=f"k{n}-{len(world.states())}", expires_in_ms=DAY)
    return [claimed.lease for claimed in world.claim()]


def of_claim(world: World) -> Calls:
    world.push()
    world.push(queue="two", expires_in_ms=1000)
    world.push(queue="two", key="k")
    world.advance(1000)
    ledger = world.ledger
    return [ledger.claim("boot", 1, ["default"], 1, rung=False), ledger.claim("boot", 2, ["default", "two"], 10)]


def of_commit(world: World) -> Calls:
    plain, keyed, follows = world.start(), world.start(key="c"), world.start()
    after = [world.new(), world.new(id="join", delay_ms=DAY, join=Join(1, "0"))]
    done = [(plain, b"1", ()), (keyed, None, ()), (follows, b"x" * 1000, after)]
    return [world.ledger.commit(done), world.ledger.commit(done)]


def of_retry(world: World) -> Calls:
    now, later, back, quiet, other = leases(world, 5)
    ledger = world.ledger
    return [
        ledger.retry(now, 0, "why"),
        ledger.retry(later, 100, "why"),
        ledger.retry(back, 100, "why", putback=True),
        ledger.retry(quiet, 100, quiet=True),
        ledger.retry(other, 0, replace=world.new(id=other.task_id, payload=b"x" * 1000)),
    ]


def of_bury(world: World) -> Calls:
    one, two = leases(world, 2)
    return [world.ledger.bury(one, "r", "detail"), world.ledger.bury(two, "r", "detail", [world.new()])]


def of_revive(world: World) -> Calls:
    leases(world, 2)
    return [world.ledger.revive(), world.ledger.revive(worker_id="boot")]


def of_promote(world: World) -> Calls:
    world.push(delay_ms=1000)
    world.push(delay_ms=1000, expires_in_ms=500)
    world.push(expires_in_ms=500, queue="unserved")
    world.advance(1000)
    return [world.ledger.promote()]


def of_reap(world: World) -> Calls:
    world.commit(world.start(result_ttl_ms=1000, key="k", tomb_ttl_ms=DAY))
    world.advance(1001)
    return [world.ledger.reap()]


def of_reconcile(world: World) -> Calls:
    task = world.push()
    world.command("ZREM", world.key("ready", "default"), task)
    return [world.ledger.reconcile(), world.ledger.reconcile([Subject("task", task.encode())], "0", "1")]


def of_cancel(world: World) -> Calls:
    waits, runs = world.push(), world.start(queue="two").task_id
    return [world.ledger.cancel(task, world.version(task)) for task in (waits, runs)]


def of_discard(world: World) -> Calls:
    dead = world.start(tomb_ttl_ms=DAY)
    world.bury(dead)
    return [world.ledger.discard(dead.task_id, world.version(dead.task_id))]


def of_schedule(world: World) -> Calls:
    ledger, at = world.ledger, world.now + 1000
    versions = [world.run(ledger.schedule(name, "0", b"{}", at)).version for name in ("a", "b")]
    states = (ScheduleState.PAUSED, ScheduleState.DISABLED)
    changes = zip(("a", "b"), versions, states, strict=True)
    return [ledger.schedule(name, version, b"{}", None, state=state) for name, version, state in changes]


def of_unschedule(world: World) -> Calls:
    version = world.run(world.ledger.schedule("a", "0", b"{}", world.now + 1000)).version
    return [world.ledger.unschedule("a", version), world.ledger.unschedule("a", version)]


def of_due_schedules(world: World) -> Calls:
    """The sweep finds due schedules, and corrects an index that does not match."""
    calls = of_promote(world)
    for name in ("due", "gone", "paused"):
        world.run(world.ledger.schedule(name, "0", b"{}", world.now + 10))
    world.command("DEL", world.key("schedule", "gone"))
    world.command("HSET", world.key("schedule", "paused"), "state", "paused")
    world.advance(20)
    return calls


def held(world: World, *keys: str) -> None:
    for key in keys:
        world.run(world.ledger.lock(key, "token", 1000, "web.1"))


def of_lock(world: World) -> Calls:
    held(world, "over")
    world.advance(1000)
    lease = world.start()
    return [world.ledger.lock(key, "new", 1000, lease) for key in ("over", "fresh", "fresh")]


def of_ends_of_locks(move: Callable[[World, str], Call[Any]]) -> Callable[[World], Calls]:
    def calls(world: World) -> Calls:
        held(world, "a")
        return [move(world, "a"), move(world, "nobody's")]

    return calls


def opened(world: World) -> str:
    """Create an open batch with waiting members and one that runs."""
    after = packed_plan([], [world.new()])
    header = BatchHeader(id="g", open=True, lease_ms=DAY, plans=(("on_complete", after),))
    world.run(world.ledger.open_batch(header))
    world.start(member=Member(batch="g", place=0))
    world.push(member=Member(batch="g", place=1))
    return "g"


def helper(world: World) -> str:
    world.run(world.ledger.register("relay", 5000, "{}", Role.RELAY))
    return "relay"


def of_beat(world: World) -> Calls:
    return [world.ledger.beat(node, 5000, "1", "{}") for node in (helper(world), "boot", "gone")]


NEEDED: dict[str, Callable[[World], Calls]] = {
    # a worker
    "open": lambda world: [world.ledger.open()],
    "register": lambda world: [
        *(world.ledger.register(boot, 5000) for boot in ("boot", "new")),
        *(world.ledger.register(boot, 5000, "{}", Role.RELAY) for boot in ("relay", "relay")),
    ],
    "beat": of_beat,
    "retire": lambda world: [world.ledger.retire(boot) for boot in (helper(world), "boot", "gone")],
    "order": lambda world: [world.ledger.order(boot, Orders(0, draining=True)) for boot in (helper(world), "boot")],
    "claim": of_claim,
    # a running task
    "checkpoint": lambda world: [world.ledger.checkpoint(lease, 1, b"x" * 1000) for lease in leases(world, 2)],
    "step": lambda world: [world.ledger.step(lease, "s", b"x" * 1000) for lease in leases(world, 2)],
    "progress": lambda world: [world.ledger.progress(lease, "half") for lease in leases(world, 2)],
    "lock": of_lock,
    "renew": of_ends_of_locks(lambda world, key: world.ledger.renew(key, "token", 1000)),
    "conclude": of_ends_of_locks(lambda world, key: world.ledger.conclude(key, "token", 1000, b"x" * 1000)),
    "unlock": of_ends_of_locks(lambda world, key: world.ledger.unlock(key, "token")),
    # its end
    "commit": of_commit,
    "retry": of_retry,
    "release": lambda world: [world.ledger.release(leases(world, 2))],
    "bury": of_bury,
    "forfeit": lambda world: [world.ledger.forfeit(lease, "killed") for lease in leases(world, 2)],
    # the sweep
    "revive": of_revive,
    "promote": of_due_schedules,
    "reap": of_reap,
    "reconcile": of_reconcile,
    # operators who free memory, and all reads
    "cancel": of_cancel,
    "discard": of_discard,
    "pause": lambda world: [world.ledger.pause("default", 0)],
    "resume": lambda world: [world.ledger.pause("default", 0), world.ledger.resume("default", 1)],
    "schedule": of_schedule,
    "unschedule": of_unschedule,
    "schedules": lambda world: [world.ledger.schedules(), world.ledger.schedules("a")],
    "get": lambda world: [world.ledger.get(world.push())],
    "steps": lambda world: [world.ledger.steps(world.push())],
    "list": lambda world: [world.ledger.list("ready", world.push())],
    "owned": lambda world: [world.ledger.owned("boot")],
    "stats": lambda world: [world.ledger.stats()],
    "limit": lambda world: [world.ledger.limit("tenant", 0, LimitNumbers(3))],
    "limits": lambda world: [world.ledger.limits()],
    # batches
    "extend_batch": lambda world: [world.ledger.extend_batch(opened(world))],
    "seal_batch": lambda world: [world.ledger.seal_batch(opened(world))],
    "cancel_batch": lambda world: [world.ledger.cancel_batch(opened(world))],
    "batch": lambda world: [world.ledger.batch(opened(world))],
    "batches": lambda world: [world.ledger.batches()],
    "members": lambda world: [world.ledger.members(opened(world))],
    "results": lambda world: [world.ledger.results(opened(world))],
    "lanes": lambda world: [world.ledger.lanes()],
    # events
    "events": lambda world: [world.ledger.events("tasks", where) for where in ("start", "now", "1-1")],
    "watch": lambda world: [world.ledger.watch()],
    # statistics
    "outcomes": lambda world: [world.ledger.outcomes("minute", 5), world.ledger.outcomes("hour", 5)],
}
BRINGS_NEW = {"submit", "replay", "ring_outbox", "fire", "open_batch"}  # test_full.py: refused whole


def test_every_script_is_in_exactly_one_of_the_two_tables() -> None:
    assert NEEDED.keys() | BRINGS_NEW == load_scripts().names()
    assert not NEEDED.keys() & BRINGS_NEW


@pytest.mark.parametrize("script", NEEDED)
def test_a_full_store_refuses_nothing_that_a_task_or_a_worker_needs(small: FullWorld, script: str) -> None:
    calls = NEEDED[script](small.world)
    assert {call.script for call in calls} - {"pause"} <= {script}
    with small.full():
        for call in calls:
            try:
                small.world.run(call)
            except StoreFullError as error:
                pytest.fail(f"{script} was refused for lack of memory: {error}")
