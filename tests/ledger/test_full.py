"""A store at its memory limit: workers can finish their tasks and free memory; only calls that bring new data are
refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from relier.errors import StoreFullError
from relier.ledger.records import Admission, AdmissionLimit, Join, Lease
from relier.states import State
from relier.store import Durability
from tests.support.ledger_world import DAY, World
from tests.support.servers import Server

Boot = Callable[..., Server]
LIMIT = 100_000  # bytes: below what a server needs for itself, so it stays full whatever is freed


class FullWorld:
    """A namespace on its own server, and a way to fill that server."""

    def __init__(self, world: World, server: Server) -> None:
        self.world = world
        self.server = server

    @contextmanager
    def full(self) -> Iterator[World]:
        """Keep the server over its memory limit inside the block, from its beginning to its end."""
        self.server.command("CONFIG", "SET", "maxmemory", LIMIT)
        self._assert_full()
        yield self.world
        self._assert_full()
        self.server.command("CONFIG", "SET", "maxmemory", 0)

    def _assert_full(self) -> None:
        assert str(self.server.command("SET", "filler", "x")).startswith("OOM")


@pytest.fixture
def small(boot: Boot, worlds: Any, flavour: str) -> FullWorld:
    server = boot(flavour=flavour, config={"maxmemory-policy": "noeviction"})
    world = worlds(server)
    world.join()
    return FullWorld(world, server)


def test_workers_finish_on_a_full_store(small: FullWorld) -> None:
    world = small.world
    for _ in range(10):
        world.push()
    with small.full():
        world.join("new")
        assert world.beat("new").alive
        leases = [claimed.lease for claimed in world.claim("new", want=8)]
        assert world.commit(leases[0], b"result").verdict == "ok"
        assert world.commit(leases[0], b"result").verdict == "repeat"
        assert world.retry(leases[1]).verdict == "ok"
        assert world.retry(leases[2], 1000).verdict == "ok"
        assert world.retry(leases[3], 1000, putback=True).verdict == "ok"
        assert world.release(leases[4]).verdict == "ok"
        assert world.bury(leases[5]).verdict == "ok"
        assert world.run(world.ledger.forfeit(leases[6], "killed")).verdict == "ok"
        assert world.lose("new").outcomes == ((leases[7].task_id, "queued"),)
        assert not world.beat("new").alive
        assert world.run(world.ledger.retire("boot")) == 0
    assert world.state(leases[0].task_id) is State.DONE
    assert world.get(leases[0].task_id).result == b"result"


def test_a_zombie_is_refused_on_a_full_store(small: FullWorld) -> None:
    lease = small.world.start()
    with small.full() as world:
        world.lose()
        assert world.commit(lease).verdict == "stale"
        assert world.release(lease).verdict == "stale"
        assert world.bury(lease).verdict == "stale"
        assert world.commit(Lease("nothing", "1", "boot")).verdict == "missing"


def test_a_commit_submits_its_follow_ups_on_a_full_store(small: FullWorld) -> None:
    lease = small.world.start()
    after = small.world.new(key="k")
    with small.full() as world:
        assert world.commit(lease, b"1", [after]).verdict == "ok"
    assert small.world.state(after.id) is State.QUEUED


def test_follow_ups_of_an_ended_task_enter_a_full_store(small: FullWorld) -> None:
    world = small.world
    for _ in range(4):
        world.push()
    first, second, third, fourth = (claimed.lease for claimed in world.claim())
    after = world.new(key="k")
    join = {"id": "j", "delay_ms": DAY}
    other = world.new(id=fourth.task_id, queue="there", payload=b"x" * 2000)
    with small.full():
        assert world.bury(first, "failed", [after]).verdict == "ok"
        assert world.bury(second, "failed", [world.new(**join, join=Join(2, "0"))], b"x" * 100).verdict == "ok"
        assert world.commit(third, b"r", [world.new(**join, join=Join(2, "1"))]).verdict == "ok"
        assert world.retry(fourth, replace=other).verdict == "ok"
    assert (world.state(after.id), world.state("j")) == (State.QUEUED, State.QUEUED)
    assert world.get("j").steps == {"0": b"x" * 100, "1": b"r"}
    assert world.get(fourth.task_id).payload == b"x" * 2000


def test_sweepers_work_on_a_full_store(small: FullWorld) -> None:
    world = small.world
    done = world.start(result_ttl_ms=1000, key="k", tomb_ttl_ms=DAY)
    world.commit(done)
    due = world.push(delay_ms=1000)
    gone = world.push(delay_ms=1000, expires_in_ms=1001)
    running = world.start(queue="other")
    world.advance(1001)
    with small.full():
        assert world.run(world.ledger.promote()).count == 1
        assert world.run(world.ledger.reap()) == 1
        assert world.lose().outcomes == ((running.task_id, "queued"),)
    assert world.states() == {due: State.QUEUED, gone: State.CANCELLED, running.task_id: State.QUEUED}


def test_operators_make_room_on_a_full_store(small: FullWorld) -> None:
    world = small.world
    queued, scheduled, running = world.push(), world.push(delay_ms=1000), world.start(queue="other")
    dead = world.start(queue="other", tomb_ttl_ms=DAY)
    world.bury(dead)
    version = {task: world.version(task) for task in (queued, scheduled, running.task_id, dead.task_id)}
    with small.full():
        assert world.run(world.ledger.cancel(queued, version[queued])).verdict == "ok"
        assert world.run(world.ledger.cancel(scheduled, version[scheduled])).verdict == "ok"
        assert world.run(world.ledger.cancel(running.task_id, version[running.task_id])).verdict == "asked"
        assert world.run(world.ledger.discard(dead.task_id, version[dead.task_id])).verdict == "ok"
        assert world.run(world.ledger.pause("default", 0)).verdict == "ok"
        assert world.run(world.ledger.resume("default", 1)).verdict == "ok"
        assert world.release(running).state == "cancelled"


def test_claims_end_tasks_that_cannot_run_on_a_full_store(small: FullWorld) -> None:
    world = small.world
    expired, broken = world.push(expires_in_ms=1000), world.push()
    world.advance(1000)
    world.command("SET", world.key("task", broken), "broken")
    with small.full():
        assert world.claim() == ()
    assert (world.state(expired), world.state(broken)) == (State.CANCELLED, State.DEAD)


def test_new_data_is_refused_as_a_whole_on_a_full_store(small: FullWorld) -> None:
    world = small.world
    dead = world.start(queue="other")
    world.bury(dead)
    version = world.version(dead.task_id)
    kept = world.push(key="taken")
    limited = Admission((AdmissionLimit.per_window("l", 10, 60_000),), max_depth=100, max_bytes=10_000)
    refused = [
        world.ledger.submit([world.new()]),
        world.ledger.submit([world.new(), world.new(key="k", nonce="n"), world.new(delay_ms=5)]),
        world.ledger.submit([world.new(key="taken", on_conflict="replace")]),
        world.ledger.submit([world.new(), world.new()], limited),
        world.ledger.submit([world.new(id=kept), world.new()]),
        world.ledger.replay(dead.task_id, version, "n"),
        world.ledger.replay(dead.task_id, version, "n", b"edited", fresh=True),
        world.ledger.lock("k", "token", 1000, "web.1"),
    ]
    with small.full():
        for call in refused:
            with world.unchanged(), pytest.raises(StoreFullError, match="nothing was written"):
                world.run(call)


def test_a_running_task_continues_on_a_full_store(small: FullWorld) -> None:
    """This covers everything that a running task writes: without these writes the task could not end and free
    memory."""
    world, ledger = small.world, small.world.ledger
    lease, again = world.start(), world.start()
    world.run(ledger.step(again, "paid", b"1"))
    world.run(ledger.checkpoint(again, 1, b"half"))
    with small.full():
        for held in (lease, again):
            assert world.run(ledger.step(held, "ship", b"x" * 10_000)).settled.verdict == "ok"
            assert world.run(ledger.step(held, "ship", b"y")).value == b"x" * 10_000
            assert world.run(ledger.checkpoint(held, 2, b"x" * 10_000)).verdict == "ok"
            assert world.run(ledger.checkpoint(held, 2, b"x" * 10_000)).verdict == "repeat"
            assert world.run(ledger.progress(held, "nearly there")).verdict == "ok"
            key = f"charge:{held.task_id}"
            assert world.run(ledger.lock(key, "token", 1000, held)).state == "claimed"
            assert world.run(ledger.lock(key, "other", 1000, "web.1")).state == "in_flight"
            assert world.run(ledger.conclude(key, "token", DAY, b"x" * 10_000)) == "ok"
            assert world.commit(held, b"result").verdict == "ok"
    assert world.state(lease.task_id) is world.state(again.task_id) is State.DONE


def test_locks_end_on_a_full_store(small: FullWorld) -> None:
    world, ledger = small.world, small.world.ledger
    for key in ("done", "failed", "goes on"):
        world.run(ledger.lock(key, "token", 1000, "web.1"))
    with small.full():
        assert world.run(ledger.conclude("done", "token", DAY, b"x" * 10_000)) == "ok"
        assert world.run(ledger.conclude("done", "token", DAY, b"x" * 10_000)) == "repeat"
        assert world.run(ledger.unlock("failed", "token")) == "ok"
        assert world.run(ledger.renew("goes on", "token", 5000)) == "ok"
        assert world.run(ledger.lock("goes on", "token", 1000, "web.1")).state == "claimed"
        assert world.run(ledger.lock("goes on", "other", 1000, "web.2")).left_ms == 5000
        assert world.run(ledger.lock("done", "other", 1000, "web.2")).result == b"x" * 10_000
        assert world.run(ledger.renew("goes on", "other", 5000)) == "stale"
        assert world.run(ledger.unlock("nothing", "token")) == "missing"
    assert world.pttl("lock", "goes on") > 5000


def test_repeated_pushes_get_their_receipts_on_a_full_store(small: FullWorld) -> None:
    task = small.world.new(key="k", nonce="n")
    small.world.submit(task)
    with small.full() as world:
        assert world.submit(task)[0].status == "new"
        assert world.submit(world.new(id=task.id))[0].status == "exists"
        assert world.submit(world.new(key="k"))[0].status == "duplicate"
        if "fsync" in world_levels(world):
            assert world.run(world.ledger.submit([task], durability=Durability.FSYNC))[0].status == "new"


def world_levels(world: World) -> set[str]:
    return {"fsync"} if getattr(world.store.probe(), "waitaof", False) else set()


def test_reads_work_on_a_full_store(small: FullWorld) -> None:
    lease = small.world.start()
    with small.full() as world:
        assert world.get(lease.task_id).record.state is State.RUNNING
        assert world.run(world.ledger.owned("boot")) == {lease.task_id: lease.fence}
        assert len(world.run(world.ledger.list("owned", "boot")).records) == 1
        assert world.counts()["submitted"] == 1
        world.run(world.ledger.open())
