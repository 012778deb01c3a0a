"""Throughput with 1, 2 and 4 shards, each on a store of its own, and what binds on this machine.

    python -m bench.shards [--quick]

One producer pushes no-op tasks in bulk; then one worker process per shard runs them. Rates of the workers are taken
between 10 % and 90 % done. The CPU of stores and workers in that time says which of them binds. On a machine with few
cores it is the machine, so the table also shows what one core of a store would carry, which does not depend on that.

Last, a Redis Cluster of 100 masters is simulated: a million ids, and tasks of tenants of different sizes, are hashed to
100 shards. The busiest shard decides what the cluster carries.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bench.fleets import Table, leave, quick
from relier.engines.supervisor import process_state
from relier.ledger.pages import read_stats
from relier.ledger.records import new_task_id
from relier.settings import Settings
from relier.settings.shards import shard_of
from relier.submit.client import use_client
from tests.shards.workers import ShardedFleet
from tests.support.fleet import Member
from tests.support.jobs import sharded as jobs

TASKS = 40_000
LOOK_S = 0.05
NODES = 100
IDS = 1_000_000
TENANTS = 10_000
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Moment:
    """What was used and done at one moment: seconds, tasks, and seconds of CPU. `machine`: of all processes."""

    at: float
    done: int
    stores: float
    workers: float
    machine: float


def moment(fleet: ShardedFleet, worker: Member) -> Moment:
    stores = 0.0
    for shard in fleet.client.shards:
        lines = shard.sync_store.command("INFO", "cpu").decode().splitlines()
        used = dict(line.split(":", 1) for line in lines if ":" in line)
        stores += float(used["used_cpu_user"]) + float(used["used_cpu_sys"])
    workers = sum(process_state(pid)[1] for pid in worker.session()) / TICKS
    done = sum(read_stats(shard.run, shard.ledger).counts.get("done", 0) for shard in fleet.client.shards)
    return Moment(time.perf_counter(), done, stores, workers, machine_seconds())


def machine_seconds() -> float:
    """Return the seconds of CPU that all processes of the machine have used (Linux)."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split(maxsplit=9)[1:9])
    return (user + nice + system + sum(rest)) / TICKS


def drained(fleet: ShardedFleet, tasks: int) -> tuple[Moment, Moment]:
    """Run the tasks. Return the first moments with 10 % and 90 % done."""
    worker = fleet.start("worker", "tests.support.jobs.sharded")
    found: list[Moment] = []
    while len(found) < 2:
        now = moment(fleet, worker)
        if now.done >= tasks * (0.1, 0.9)[len(found)]:
            found.append(now)
        time.sleep(LOOK_S)
    while moment(fleet, worker).done < tasks:
        time.sleep(LOOK_S)
    worker.terminate()
    return found[0], found[1]


def measure(shards: int, tasks: int) -> tuple[Table, float]:
    """Return the table, and how many tasks one core of a store would carry per second."""
    table = Table(f"{shards} shard{'s' * (shards != 1)}, {tasks:,} no-op tasks")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        urls = " ".join(f"embedded://{folder}/store{n}" for n in range(shards))
        fleet = ShardedFleet(
            Settings(redis_url=urls, namespace="bench", shards=shards, admission_limit=0, log_level="warning"),
            Path(folder),
        )
        use_client(fleet.client)
        try:
            begun = time.perf_counter()
            ids = [each.id for each in jobs.add.push_many([(1,)] * tasks)]
            pushed = tasks / (time.perf_counter() - begun)
            early, late = drained(fleet, tasks)
            fleet.check(ids)
        finally:
            use_client(None)
            fleet.close()
    ran, seconds = late.done - early.done, late.at - early.at
    stores, workers = late.stores - early.stores, late.workers - early.workers
    table.line("pushed by one producer", pushed, "/s")
    table.line("run by the workers, one process per shard", ran / seconds, "/s")
    table.line("cores used by the stores", stores / seconds)
    table.line("cores used by the workers", workers / seconds)
    table.line("what one core of a store would carry (claim to commit)", ran / stores, "/s")
    table.line("what one core of workers would run", ran / workers, "/s")
    busy, cores = (late.machine - early.machine) / seconds, os.cpu_count() or 1
    binds = "the machine" if busy > 0.9 * cores else "a store" if stores > 0.9 * seconds * shards else "the workers"
    table.line(f"cores busy on the machine, of {cores}, with other processes", busy)
    print(f"  what binds: {binds}")
    return table, ran / stores


def simulate(nodes: int, per_core: float) -> Table:
    """Compute what a cluster carries, if half of a core of each master is used and the busiest one sets the limit."""
    table = Table(f"A Redis Cluster of {nodes} masters with one shard each, on paper")
    spread = Counter(shard_of(new_task_id(), nodes) for _ in range(IDS))
    sizes = {f"tenant:{n}": IDS // (n + 1) for n in range(TENANTS)}  # the n-th tenant pushes 1/n of the first one's
    tenants = Counter[int]()
    for tenant, size in sizes.items():
        tenants[shard_of(tenant, nodes)] += size
    for what, load in (("tasks without keys", spread), (f"{TENANTS:,} tenants, Zipf, a limit each", tenants)):
        skew = max(load.values()) * nodes / load.total()
        table.line(f"{what}: the busiest shard, of the mean", skew, "x")
        table.line(f"{what}: carried", nodes * per_core / 2 / skew, "/s")
    return table


def main() -> None:
    tasks = TASKS // 10 if quick() else TASKS
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    measured = [measure(shards, tasks) for shards in (1, 2, 4)]
    leave(*(table for table, _ in measured), simulate(NODES, measured[0][1]))


if __name__ == "__main__":
    main()
