"""Workers repair damaged keys and leave sound ones alone. Store time is virtual: 15 s pass in
120 turns."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from relier.cli.audit import audit
from relier.ledger.batches.membership import BatchHeader, Member
from relier.ledger.defaults import REPAIR_EVERY_MS
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.moves.repair import REPAIR_SUBJECTS, Subject
from relier.rescue.phoenix import Phoenix
from relier.rescue.repair import Repairer
from relier.states import State
from relier.store import AsyncStore, Scripts
from tests.support.ledger_world import World
from tests.support.servers import Server

NewWorld = Callable[..., World]
ONE = (RunLimit("tenant", "tenant:1", LimitNumbers(1)),)
WITHIN_MS = 15_000
TURN_MS = REPAIR_EVERY_MS


@pytest.fixture(scope="module")
def own_server(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without keys of other tests. The scan reads the keys of the whole server, so others would delay it."""
    server = Server(tmp_path_factory.mktemp("repair"), flavour).start()
    yield server
    server.stop()


@pytest.fixture
def clocked(worlds: NewWorld, own_server: Server) -> World:
    own_server.command("FLUSHALL")
    world = worlds(own_server)
    world.join()
    return world


def repaired(world: World, scripts: Scripts, within_ms: int = WITHIN_MS) -> Counter[str]:
    """Let one worker take its turns for that long, and return what it repaired."""

    async def work() -> Counter[str]:
        async with AsyncStore(world.settings, scripts) as store:
            repairer = Repairer(store, world.ledger)
            for _ in range(within_ms // TURN_MS):
                world.advance(TURN_MS)
                await repairer.turn()
            return repairer.repaired

    return asyncio.run(work())


def problems(world: World) -> list[str]:
    """Return the kinds of problems that the audit finds. The test's clock is a key that it does not know."""
    found = audit(world.store, world.ledger, sleep=lambda _: None).findings
    return [finding.kind for finding in found if finding.kind != "unknown_key"]


def busy(world: World) -> None:
    """Fill the namespace with a task in every place: queued, scheduled, running, ended, behind a limit, in a batch."""
    world.push(delay_ms=60_000)
    world.commit(world.start(queue="done"))
    world.start(queue="runs")
    world.push()
    for _ in range(3):
        world.push(queue="limited", limits=ONE)
    world.claim(queues=["limited"])
    header = BatchHeader(id="g", name="batch")
    world.push(queue="member", member=Member(batch="g", place=0, how="opens", opens=(header,)))


def only(world: World, name: str, of: str = "") -> str:
    return world.members(name, of)[0]


def drop(name: str, of: str = "") -> Callable[[World], object]:
    """Return damage: the first entry of an index is gone."""
    return lambda world: world.command("ZREM", world.key(name, of), only(world, name, of))


def add(name: str, of: str = "", member: str = "nobody") -> Callable[[World], object]:
    """Return damage: an index has an entry that leads nowhere."""
    return lambda world: world.command("ZADD", world.key(name, of), 5, member)


def forget_worker(world: World) -> None:
    for name in ("boots", "leases"):
        world.command("ZREM", world.key(name), "boot")
    world.command("DEL", world.key("worker", "boot"))


DAMAGE: dict[str, tuple[Callable[[World], object], str]] = {
    "queued_without_index": (drop("ready", "default"), "queued"),
    "scheduled_without_index": (drop("due"), "scheduled"),
    "running_without_index": (drop("owned", "boot"), "running"),
    "ended_without_index": (drop("ended", "done"), "ended"),
    "waiting_without_lane": (drop("lane", "tenant:1 limited"), "queued"),
    "index_without_record": (add("ready", "default"), "entry"),
    "due_without_record": (add("due"), "entry"),
    "owned_without_record": (add("owned", "boot"), "entry"),
    "in_two_indexes": (lambda w: w.command("ZADD", w.key("due"), 5, only(w, "ready", "default")), "entry"),
    "owned_by_nobody": (forget_worker, "unowned"),
    "slot_without_run": (add("slots", "tenant:1"), "slot"),
    "run_without_slot": (drop("slots", "tenant:1"), "slot"),
    "lane_forgotten": (lambda w: w.command("HDEL", w.key("lanes"), "tenant:1 limited"), "lane"),
    "lane_not_asleep": (drop("sleepers", "tenant:1 limited"), "lane"),
    "sleepers_unknown": (lambda w: w.command("DEL", w.key("sleeping", "tenant:1")), "lane"),
    "sleeper_awake": (add("sleepers", "tenant:1 limited", "gone limited"), "lane"),
    "pacer_not_scheduled": (lambda w: w.command("HSET", w.key("pacers"), "k q", "nobody"), "lane"),
    "waiting_miscounted": (lambda w: w.command("HINCRBY", w.key("waiting"), "limited", 3), "lane"),
    "batch_miscounted": (lambda w: w.command("HINCRBY", w.key("batch", "g"), "size", 1), "batch"),
    "batch_in_no_index": (drop("batches"), "batch"),
    "batch_without_record": (add("batches"), "entry"),
    "bell_too_long": (lambda w: w.command("RPUSH", w.key("bell", "default"), 1, 1), "bell"),
    "queue_unknown": (lambda w: w.command("SREM", w.key("queues"), "default"), "bell"),
    "old_lock": (lambda w: w.command("SET", w.key("lock", "k"), "held 5 token place - -\n"), "lock"),
    "key_without_task": (lambda w: w.command("SET", w.key("idem", "k"), "nobody"), "key"),
    "side_without_record": (lambda w: w.command("RPUSH", w.key("history", "nobody"), "[]"), "leftover"),
    "worker_without_lease": (lambda w: w.command("HSET", w.key("worker", "gone"), "x", 1), "leftover"),
    "results_without_batch": (lambda w: w.command("HSET", w.key("results", "gone"), "x", 1), "leftover"),
    "live_with_expiry": (
        lambda w: w.command("PEXPIRE", w.key("task", only(w, "ready", "default")), 60_000_000),
        "expiry",
    ),
}
UNKNOWN_TO_THE_AUDIT = {"old_lock", "batch_without_record"}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_repaired_within_fifteen_seconds(clocked: World, clocked_scripts: Scripts, name: str) -> None:
    damage, kind = DAMAGE[name]
    busy(clocked)
    assert not problems(clocked)
    damage(clocked)
    assert problems(clocked) or name in UNKNOWN_TO_THE_AUDIT
    assert repaired(clocked, clocked_scripts)[kind] >= 1
    assert clocked.counts()[f"repaired_{kind}"] >= 1
    clocked.run(clocked.ledger.revive())
    clocked.run(clocked.ledger.reap())
    assert set(problems(clocked)) <= {"books"}  # an entry that led to no record was a task that is lost
    assert not repaired(clocked, clocked_scripts)


def test_a_sound_namespace_is_not_changed(clocked: World, clocked_scripts: Scripts) -> None:
    busy(clocked)
    before = clocked.dump()
    assert not repaired(clocked, clocked_scripts)
    after = clocked.dump()
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == {"meta"}


def test_tasks_of_an_unregistered_worker_run_again_after_the_next_sweep(
    clocked: World, clocked_scripts: Scripts
) -> None:
    lease = clocked.start()
    forget_worker(clocked)
    clocked.command("ZREM", clocked.key("owned", "boot"), lease.task_id)
    clocked.join("other")
    assert repaired(clocked, clocked_scripts) == {"running": 1, "unowned": 1}
    assert clocked.run(clocked.ledger.revive()).outcomes == ((lease.task_id, "queued"),)
    assert not clocked.command("ZSCORE", clocked.key("boots"), "boot")
    (again,) = clocked.claim("other")
    assert again.lease.task_id == lease.task_id
    assert clocked.commit(lease).verdict == "stale"


def test_a_member_whose_record_is_gone_ends_its_batch(clocked: World, clocked_scripts: Scripts) -> None:
    task = clocked.push(member=Member(batch="g", place=0, how="opens", opens=(BatchHeader(id="g"),)))
    clocked.delete(task)
    repaired(clocked, clocked_scripts)
    batch = dict(clocked.command_pairs("HGETALL", clocked.key("batch", "g")))
    assert (batch["state"], batch["dead"]) == (b"ended", b"1")
    clocked.sound = False  # the task is lost: accepted, and neither ended nor live


def test_many_sound_running_tasks_beside_the_damage_are_not_touched(clocked: World, clocked_scripts: Scripts) -> None:
    tasks = [clocked.new() for _ in range(10_000)]
    for chunk in clocked.ledger.chunks(tasks):
        clocked.store.run(clocked.ledger.submit(chunk))
    for seq in range(1, 11):
        clocked.store.run(clocked.ledger.claim("boot", seq, ["default"], 1000))
    waits = clocked.store.run(clocked.ledger.submit([clocked.new(), clocked.new()]))
    lost, victim = waits[0].id, tasks[5000].id
    before = clocked.dump()
    clocked.command("ZREM", clocked.key("ready", "default"), lost)
    clocked.command("ZREM", clocked.key("owned", "boot"), victim)
    assert repaired(clocked, clocked_scripts) == {"queued": 1, "running": 1}
    after = clocked.dump()
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed <= {"meta", "counts", "b:default", "queues"}


def test_a_call_repairs_a_hundred_and_says_how_far_it_came(clocked: World, clocked_scripts: Scripts) -> None:
    tasks = [clocked.new() for _ in range(250)]
    for chunk in clocked.ledger.chunks(tasks):
        clocked.store.run(clocked.ledger.submit(chunk))
    clocked.command("DEL", clocked.key("ready", "default"))
    subjects = [Subject("task", task.id.encode()) for task in tasks]
    first = clocked.run(clocked.ledger.reconcile(subjects, "0", "9"))
    assert (first.looked, first.counts, first.cursor) == (100, {"queued": 100}, "0")
    assert repaired(clocked, clocked_scripts) == {"queued": 150}
    assert {task.id for task in tasks} == {*clocked.members("ready", "default")}


def test_workers_share_the_pace_and_the_cursor(clocked: World) -> None:
    ask = clocked.ledger.reconcile()
    clocked.run(ask)
    assert clocked.run(ask).pages == 0
    clocked.advance(TURN_MS)
    assert (clocked.run(ask).pages, clocked.run(ask).pages) == (1, 0)
    clocked.advance(TURN_MS * 100)
    assert clocked.run(ask).pages == 16
    clocked.advance(-60_000)
    assert clocked.run(ask).pages == 16  # TIME went back: nobody waits for it to return
    assert clocked.run(clocked.ledger.reconcile([], "0", "17")).cursor == "17"
    assert clocked.run(clocked.ledger.reconcile([], "0", "9")).cursor == "17"  # another worker was there first


def test_a_page_is_never_larger_than_a_call_may_be(clocked: World) -> None:
    call = clocked.ledger.reconcile([Subject("task", b"t")] * (REPAIR_SUBJECTS + 7), "0", "1")
    assert len(call.args) == 2 + 3 * REPAIR_SUBJECTS


def test_the_sweep_repairs_and_logs_each_kind(
    clocked: World, clocked_scripts: Scripts, caplog: pytest.LogCaptureFixture
) -> None:
    busy(clocked)
    DAMAGE["queued_without_index"][0](clocked)
    DAMAGE["old_lock"][0](clocked)

    async def sweep() -> None:
        async with AsyncStore(clocked.settings, clocked_scripts) as store:
            await Phoenix(clocked.settings, store, clocked.ledger).sweep_once()

    with caplog.at_level(logging.INFO, "relier.phoenix"):
        asyncio.run(sweep())
    assert {"repaired kind=lock count=1", "repaired kind=queued count=1"} <= {r.getMessage() for r in caplog.records}
    assert clocked.state(only(clocked, "ready", "default")) is State.QUEUED


def test_a_key_of_the_wrong_type_stops_no_repair(clocked: World, clocked_scripts: Scripts) -> None:
    busy(clocked)
    DAMAGE["queued_without_index"][0](clocked)
    clocked.command("SET", clocked.key("lane", "k q"), "text")
    clocked.command("SET", clocked.key("owned", "other"), "text")
    assert repaired(clocked, clocked_scripts)["queued"] == 1
    clocked.sound = False
