"""Shards on a real Redis Cluster of three masters with replicas: kills, a failover, a slot that moves under load."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from relier.errors import PartialPushError, RelierError
from relier.settings import Settings
from relier.settings.shards import shard_of
from relier.submit.client import use_client
from tests.shards.workers import ShardedFleet
from tests.support.fleet import wait_until
from tests.support.jobs import sharded as jobs
from tests.support.redis_cluster import RedisCluster, slot_of
from tests.support.servers import Boot

pytestmark = [pytest.mark.slow]
SHARDS = 3
TASKS = 1200
PIECE = 60


@pytest.fixture
def cluster(boot: Boot) -> RedisCluster:
    return RedisCluster(boot)


@pytest.fixture
def fleet(cluster: RedisCluster, tmp_path: Path) -> Iterator[ShardedFleet]:
    """Workers whose three shards are on the three masters."""
    names = (f"spread{n}" for n in itertools.count())
    namespace = next(
        name for name in names if len({cluster.master_of(f"{name}.{shard}").port for shard in range(SHARDS)}) == SHARDS
    )
    settings = Settings(
        redis_url=cluster.url,
        namespace=namespace,
        shards=SHARDS,
        heartbeat_ttl=3,
        durability="replicated",
        redis_replicas=1,
        redis_durability_timeout=10,
        redis_deadline=30,
        admission_limit=0,
    )
    made = ShardedFleet(settings, tmp_path)
    use_client(made.client)
    yield made
    use_client(None)
    made.close()


class Producer(threading.Thread):
    """Push tasks under known ids. Push a piece again, with the same ids, until the store has confirmed all of it."""

    def __init__(self, tasks: int) -> None:
        super().__init__(daemon=True)
        self.ids = [f"task-{n}" for n in range(tasks)]
        self.repeats = 0
        self.pushed = 0

    def run(self) -> None:
        for first in range(0, len(self.ids), PIECE):
            piece = self.ids[first : first + PIECE]
            while not self._push(piece):
                self.repeats += 1
            self.pushed += len(piece)

    def _push(self, piece: list[str]) -> bool:
        try:
            jobs.add.push_many([(1,)] * len(piece), task_ids=piece)
        except (PartialPushError, RelierError):
            return False
        return True


def test_a_kill_sweep_loses_and_doubles_nothing(fleet: ShardedFleet) -> None:
    worker = fleet.worker()
    producer = Producer(TASKS)
    producer.start()
    for shard in (0, 1, 2, 0, 1, 2):
        wait_until(lambda: len(fleet.children(worker)) == SHARDS, 120, "a process for every shard")
        pid = next(pid for pid, its in fleet.children(worker).items() if its == shard)
        worker.signal(signal.SIGKILL, pid)
        wait_until(lambda pid=pid: pid not in fleet.children(worker), 60, "the end of the process")
    producer.join(300)
    fleet.wait_done(producer.ids)
    fleet.check(producer.ids)
    assert worker.said().count("died") == 6


def test_a_failover_loses_and_doubles_nothing(fleet: ShardedFleet, cluster: RedisCluster) -> None:
    worker = fleet.worker()
    producer = Producer(TASKS)
    producer.start()
    wait_until(lambda: producer.pushed >= TASKS // 4, 300, "a quarter of the pushes")
    master = cluster.master_of(f"{fleet.settings.namespace}.1")
    replica = cluster.replica_of(master)
    master.kill()
    wait_until(lambda: cluster.has_failed_over_to(replica), 120, "the failover")
    master.start()  # comes back as a replica, which `replicated` needs
    wait_until(lambda: master.info("replication").get("master_link_status") == "up", 120, "a new replica")
    producer.join(300)
    assert not producer.is_alive()
    fleet.wait_done(producer.ids)
    fleet.check(producer.ids)
    assert worker.terminate(120) == 0


def test_a_slot_that_moves_under_load_loses_and_doubles_nothing(fleet: ShardedFleet, cluster: RedisCluster) -> None:
    worker = fleet.worker()
    producer = Producer(TASKS)
    producer.start()
    namespace = f"{fleet.settings.namespace}.1"
    slot, source = slot_of(namespace), cluster.master_of(namespace)
    target = next(master for master in cluster.masters if master is not source)
    for there, back in ((source, target), (target, source)):
        before = producer.pushed
        wait_until(lambda before=before: producer.pushed >= before + TASKS // 4, 300, "more pushes")
        moved = list(cluster.migrate(slot, there, back))
        assert moved, "keys were moved"
    producer.join(300)
    assert not producer.is_alive()
    fleet.wait_done(producer.ids)
    fleet.check(producer.ids)
    assert worker.terminate(120) == 0


def test_a_lost_master_without_a_replica_stops_only_its_own_shard(fleet: ShardedFleet, cluster: RedisCluster) -> None:
    worker = fleet.worker()
    producer = Producer(300)
    homes = [[each for each in producer.ids if shard_of(each, SHARDS) == shard] for shard in range(SHARDS)]
    lost = cluster.master_of(f"{fleet.settings.namespace}.1")
    cluster.replica_of(lost).kill()
    lost.kill()
    others = [*homes[0], *homes[2]]
    jobs.add.push_many([(1,)] * len(others), task_ids=others)
    fleet.wait_done(others)
    lost.start()
    cluster.replica_of(lost).start()
    producer.start()  # repeats what was pushed, which makes no second task
    producer.join(300)
    fleet.wait_done(producer.ids)
    fleet.check(producer.ids)
    assert worker.terminate(120) == 0
