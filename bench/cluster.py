"""A cluster of many nodes: what sweeps and heartbeats cost, and whether anything is left behind.

    python -m bench.cluster [--quick]

members   heartbeats, sweeps and the rescue of one dead worker: 1,000 workers with 100,000 running tasks beside 10
          workers with 1,000. Script time is the store's own measure. The workers are registrations, not processes.
quiet     100,000 tasks of every kind (plain, retried with steps, limited, idempotent, batches, a schedule) while
          worker processes are killed. Once all have ended and their retention is over, the keys of the namespace are
          counted by kind, and compared with a count from before.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable

from bench import cluster_jobs as jobs
from bench.fleets import Table, a_fleet, leave, quick
from bench.ledger import LEASE_MS, Bench
from relier import Schedules, batch
from relier.cli.audit import audit
from relier.ledger.ledger import load_scripts
from relier.ledger.records import new_worker_id
from relier.settings import Settings
from relier.store import SyncStore
from tests.support.fleet import Fleet, Member, wait_until

ROUNDS = 15
CALLS = 100
FLATNESS = 1.5  # how much more a call may cost in the large cluster, including the noise of a shared machine
LEASE_S = 2.0
WORKERS = 3
RETENTION_S = 2.0
KEYS = 20


# --- members -------------------------------------------------------------------------------------------------------


class SimulatedCluster:
    """A namespace with registered workers that all run tasks. `bench` measures the store."""

    def __init__(self, folder: str, members: int, tasks: int) -> None:
        settings = Settings(redis_url=f"embedded://{folder}", namespace=f"of-{members}")
        self.bench = Bench(SyncStore(settings, load_scripts()), settings)
        self.workers = [new_worker_id() for _ in range(members)]
        self._each = tasks // members
        ledger = self.bench.ledger
        self.bench.all_of(ledger.register(each, LEASE_MS) for each in self.workers)
        self.give_tasks(self.workers)

    def give_tasks(self, workers: list[str]) -> None:
        """Submit and claim this cluster's number of tasks for each worker."""
        bench, ledger = self.bench, self.bench.ledger
        bench.all_of(ledger.submit(bench.submissions(self._each)) for _ in workers)
        claims = bench.all_of(ledger.claim(each, 1, ["default"], self._each, rung=False) for each in workers)
        if sum(len(claim.tasks) for claim in claims) != len(workers) * self._each:
            raise SystemExit("not every task was claimed")

    def round(self) -> None:
        bench, ledger = self.bench, self.bench.ledger
        some = [random.choice(self.workers) for _ in range(CALLS)]
        bench.measure("beat", CALLS, lambda: bench.all_of(ledger.beat(each, LEASE_MS) for each in some))
        bench.measure("sweep", CALLS, lambda: bench.all_of(ledger.revive() for _ in range(CALLS)))
        dead = new_worker_id()
        bench.store.run(ledger.register(dead, LEASE_MS))
        bench.all_of([ledger.submit(bench.submissions(CALLS)), ledger.claim(dead, 1, ["default"], CALLS, rung=False)])
        bench.measure("rescue", CALLS, lambda: bench.store.run(ledger.revive(CALLS, 10 * CALLS, worker_id=dead)))
        bench.store.run(ledger.claim(self.workers[0], bench.seq + 2, ["default"], CALLS, rung=False))
        bench.seq += 1


def bench_members(small: tuple[int, int], large: tuple[int, int]) -> Table:
    table = Table(f"{large[0]:,} workers with {large[1]:,} running tasks, beside {small[0]:,} with {small[1]:,}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        clusters = [SimulatedCluster(folder, *size) for size in (small, large)]
        for _ in range(ROUNDS):
            for cluster in clusters:
                cluster.round()
        for what, unit in (
            ("beat", "a heartbeat"),
            ("sweep", "a sweep that finds nothing"),
            ("rescue", "a rescued task, 100 to a sweep"),
        ):
            few, many = (cluster.bench.least(what) for cluster in clusters)
            table.line(f"{unit}: small cluster", few, "µs")
            table.line(f"{unit}: large cluster", many, "µs")
            table.most(f"{unit}: ratio", round(many / few, 2), FLATNESS, "×")
        for cluster in clusters:
            cluster.bench.store.close()
    return table


# --- quiet ---------------------------------------------------------------------------------------------------------


def push_round(number: int) -> int:
    """Push 100 tasks, some of each kind. Return how many tasks that makes, callbacks included."""
    jobs.plain.push_many([(n,) for n in range(50)])
    jobs.fails_once.push_many([(n,) for n in range(10)])
    jobs.limited.push_many([(n % KEYS,) for n in range(20)])
    for n in range(9):
        jobs.once.push(10 * number + n)
    batch([jobs.plain.s(n) for n in range(10)], then=jobs.summed.si(10)).push()
    return 50 + 10 + 20 + 9 + 11


def key_counts(fleet: Fleet) -> dict[str, int]:
    report = audit(fleet.store, fleet.ledger)
    if not report.ok:
        raise SystemExit(f"the audit found: {[finding.problem for finding in report.findings]}")
    return report.keys


def is_idle(fleet: Fleet) -> bool:
    counts = fleet.stats().counts
    return counts.get("submitted", 0) == sum(counts.get(state, 0) for state in ("done", "dead", "cancelled"))


def wait_quiet(fleet: Fleet, reached: Callable[[dict[str, int]], bool], seconds: float) -> dict[str, int]:
    """Wait until all tasks have ended and their records are gone. Return the keys that are left, by kind."""
    wait_until(lambda: is_idle(fleet), seconds, "the end of all tasks")
    until = time.monotonic() + 120
    while not reached(found := key_counts(fleet)) and time.monotonic() < until:
        time.sleep(1)
    return found


def start_worker(fleet: Fleet) -> Member:
    return fleet.start("worker", jobs.__name__, "--concurrency", "50", "--log-level", "warning")


def busy_worker(fleet: Fleet, workers: list[Member]) -> int | None:
    """Return which of the workers runs tasks now, chosen at random."""
    busy = {int(node.node_id.split(".")[1]) for node in fleet.stats().alive(LEASE_S) if node.owned}
    return random.choice([n for n, worker in enumerate(workers) if worker.pid in busy] or [None])


def push_and_kill(fleet: Fleet, workers: list[Member], tasks: int, kills: int) -> tuple[int, int]:
    """Push tasks, and kill a busy worker each time another share of them has ended. Return both counts."""
    first, pushed, rounds, killed = fleet.stats().counts["done"], 0, 0, 0
    while pushed < tasks or (killed < kills and not is_idle(fleet)):
        ended = fleet.stats().counts["done"] - first
        if pushed < tasks and pushed < ended + 5_000:
            pushed, rounds = pushed + push_round(rounds), rounds + 1
        if killed < kills and ended * (kills + 1) >= killed * tasks:
            victim = busy_worker(fleet, workers)
            if victim is not None:
                workers[victim].kill_all()
                workers[victim] = start_worker(fleet)
                killed += 1
    return pushed, killed


def bench_quiet(tasks: int, kills: int) -> Table:
    table = Table(f"{tasks:,} tasks of every kind, {kills} kills of {WORKERS} workers, then quiet")
    with a_fleet(LEASE_S, result_ttl=RETENTION_S) as fleet:
        workers = [start_worker(fleet) for _ in range(WORKERS)]
        wait_until(lambda: len(fleet.stats().alive(LEASE_S)) == WORKERS, 60, "the start of all workers")
        push_round(-1)  # queues and their marks stay for a while after the first task
        before = wait_quiet(fleet, lambda found: "task" not in found, 300)
        schedules = Schedules(fleet.client)
        schedules.create("bench-tick", jobs.plain, every=1, args=(0,))
        began = time.monotonic()
        pushed, killed = push_and_kill(fleet, workers, tasks, kills)
        schedules.remove("bench-tick")
        after = wait_quiet(fleet, lambda found: found == before, 1800)
        table.line("from the first push until nothing was left", time.monotonic() - began, "s")
        counts = fleet.stats().counts
        table.line("tasks pushed", pushed)
        table.line("tasks revived", counts.get("revived", 0))
        table.exactly("workers killed", killed, kills)
        table.exactly("tasks dead", counts.get("dead", 0), 0)
        table.exactly("tasks that have not ended", counts["submitted"] - counts["done"] - counts.get("dead", 0), 0)
        for kind in sorted(set(before) | set(after)):
            if before.get(kind, 0) != after.get(kind, 0):
                table.exactly(f"keys left: {kind}", after.get(kind, 0), before.get(kind, 0))
        table.exactly("keys left", sum(after.values()), sum(before.values()))
        for each in workers:
            each.terminate()
    return table


def main() -> None:
    small = quick()
    members = bench_members((10, 1_000), (100, 10_000) if small else (1_000, 100_000))
    leave(members, bench_quiet(*((2_000, 5) if small else (100_000, 100))))


if __name__ == "__main__":
    main()
