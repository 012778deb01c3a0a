"""Worker processes of a namespace with shards: one shard each, and one shard away stops nobody else."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relier import batch
from relier.schedules.api import Schedules
from relier.settings import Settings
from relier.settings.shards import shard_of
from relier.states import State
from relier.submit.client import use_client
from tests.shards.workers import ShardedFleet
from tests.support.fleet import wait_until
from tests.support.jobs import sharded as jobs
from tests.support.servers import Boot

NewFleet = Callable[[Settings], ShardedFleet]
ENOUGH = 120.0


@pytest.fixture
def fleets(tmp_path: Path) -> Iterator[NewFleet]:
    made: list[ShardedFleet] = []

    def start(settings: Settings) -> ShardedFleet:
        made.append(ShardedFleet(settings, tmp_path))
        use_client(made[-1].client)
        return made[-1]

    yield start
    use_client(None)
    for one in made:
        one.close()


def said_by(fleet: ShardedFleet, *arguments: str) -> tuple[int, str]:
    """Run `rl <arguments>` to its end. Return its exit code and what it printed."""
    member = fleet.start(*arguments)
    return member.wait(ENOUGH), member.said()


@pytest.mark.slow
def test_every_kind_of_task_runs_in_its_shard(fleets: NewFleet, sharded: Settings) -> None:
    fleet = fleets(sharded.replace(shards=3, heartbeat_ttl=2))
    Schedules().create("often", jobs.add, every=1, args=(1,))
    worker = fleet.worker()
    assert sorted(fleet.children(worker).values()) == [0, 1, 2]
    ids = [each.id for each in jobs.add.push_many([(n,) for n in range(200)])]
    ids += [jobs.per_tenant.push(n % 3).id for n in range(6)] + [jobs.alone.push(n).id for n in range(3)]
    fleet.wait_done(ids, ENOUGH)
    assert [jobs.charge.push(1).result(ENOUGH) for _ in range(3)] == [1, 1, 1]
    keys = [f"key-{n}" for n in range(6)]
    assert [jobs.locked.push(key).result(ENOUGH) for key in keys] == keys
    assert [jobs.locked.push(key).result(ENOUGH) for key in keys] == [f"{key}, kept" for key in keys]
    assert batch([jobs.grow.s(5)]).push().result(ENOUGH) is None
    home = fleet.client.of("often")
    wait_until(lambda: Schedules().get("often").history, ENOUGH, "a firing")
    fired = Schedules().get("often").history[0]
    assert home is fleet.client.shards[shard_of("often", 3)]
    assert fired
    code, said = said_by(fleet, "shards", "check")
    assert code == 0, said
    killed = next(iter(fleet.children(worker)))
    shard = fleet.children(worker)[killed]
    worker.signal(signal.SIGKILL, killed)
    wait_until(
        lambda: killed not in fleet.children(worker) and sorted(fleet.children(worker).values()) == [0, 1, 2],
        ENOUGH,
        f"another process for shard {shard}",
    )
    assert worker.terminate(ENOUGH) == 0


@pytest.mark.slow
def test_a_frozen_shard_stops_only_its_own_tasks(fleets: NewFleet, boot: Boot, namespace: str) -> None:
    here, frozen = boot(), boot()
    quick = {"heartbeat_ttl": 2, "redis_read_timeout": 0.5, "redis_deadline": 1.0, "redis_connect_timeout": 0.5}
    fleet = fleets(Settings(redis_url=f"{here.url} {frozen.url}", namespace=namespace, shards=2, **quick))
    worker = fleet.worker("--processes", "3", processes=3)
    assert sorted(fleet.children(worker).values()) == [0, 0, 1]
    ids = [f"id-{n}" for n in range(200)]
    homes = [[each for each in ids if shard_of(each, 2) == shard] for shard in (0, 1)]
    waiting = [each.id for each in jobs.add.push_many([(1,)] * len(homes[1]), task_ids=homes[1])]
    fleet.wait_done(waiting, ENOUGH)
    frozen.freeze()
    try:
        done = [each.id for each in jobs.add.push_many([(1,)] * len(homes[0]), task_ids=homes[0])]
        fleet.wait_done(done, ENOUGH)
        code, said = said_by(fleet, "shards", "--json")
        answers = {each["shard"]: each["answers"] for each in json.loads(said)["shards"]}
        assert (code, answers) == (3, {0: True, 1: False})
        code, said = said_by(fleet, "queues")
        assert code == 3
        assert "Shard 0" in said
        assert "default" in said
        assert "this shard is left out" in said
    finally:
        frozen.thaw()
    more = [each.id for each in jobs.add.push_many([(1,)] * 100)]
    fleet.wait_done(more, ENOUGH)
    assert fleet.states(ids) == {State.DONE: 200}
    fleet.check([*ids, *more])
    assert worker.terminate(ENOUGH) == 0


@pytest.mark.slow
def test_workers_that_cannot_serve_the_shards_do_not_start(fleets: NewFleet, sharded: Settings, tmp_path: Path) -> None:
    fleet = fleets(sharded)
    for shard in fleet.client.shards:
        shard.open()
    for arguments, message in (
        (["--processes", "2"], "--processes 2 is not enough for 4 shards"),
        (["--shards", "4"], "--shards 4 names '4', but RELIER_SHARDS is 4"),
    ):
        code, said = said_by(fleet, "worker", "tests.support.jobs.sharded", *arguments)
        assert (code, message in said) == (2, True), said
    (tmp_path / "twokeys.py").write_text(
        "from relier import rl_task\nfrom relier.limits import Limit\n\n"
        "@rl_task(limits=[Limit(concurrency=1), Limit(concurrency=1, per='t:{a}')])\n"
        "async def two(a: int) -> None: ...\n"
    )
    code, said = said_by(fleet, "worker", "twokeys", "--shards", "1")
    assert code == 2
    assert "two does not work with RELIER_SHARDS: it has limits with 2 different keys" in " ".join(said.split())
    other = fleets(sharded.replace(shards=2))
    code, said = said_by(other, "worker", "tests.support.jobs.sharded", "--shards", "1")
    assert code == 2
    assert "was created under RELIER_SHARDS=4, but this process has RELIER_SHARDS=2" in said


@pytest.mark.slow
def test_a_scheduler_sweeps_all_shards(fleets: NewFleet, sharded: Settings) -> None:
    fleet = fleets(sharded.replace(shards=2, heartbeat_ttl=2))
    names = [f"every-{n}" for n in range(4)]
    for name in names:
        Schedules().create(name, jobs.add, every=1, args=(1,))
    assert {shard_of(name, 2) for name in names} == {0, 1}
    scheduler = fleet.start("scheduler")
    wait_until(lambda: all(Schedules().get(name).history for name in names), ENOUGH, "a firing of each")
    code, said = said_by(fleet, "nodes", "--json")
    assert code == 0
    assert [len(each["nodes"]) for each in json.loads(said)["shards"]] == [1, 1]
    assert scheduler.terminate(ENOUGH) == 0


@pytest.mark.slow
def test_a_shard_that_refuses_its_worker_stops_no_other(fleets: NewFleet, boot: Boot, namespace: str) -> None:
    here, refusing = boot(), boot(config={"maxmemory-policy": "allkeys-lru"})
    fleet = fleets(Settings(redis_url=f"{here.url} {refusing.url}", namespace=namespace, shards=2))
    worker = fleet.start("worker", "tests.support.jobs.sharded")
    worker.wait_said("maxmemory-policy allkeys-lru deletes tasks", 2, ENOUGH)  # it is started again
    ids = [each for each in (f"id-{n}" for n in range(20)) if shard_of(each, 2) == 0]
    jobs.add.push_many([(1,)] * len(ids), task_ids=ids)
    fleet.wait_done(ids, ENOUGH)
    refusing.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert shard_of("id-5", 2) == 1
    fleet.wait_done([jobs.add.with_options(task_id="id-5").push(1).id], ENOUGH)
    assert worker.terminate(ENOUGH) == 0
