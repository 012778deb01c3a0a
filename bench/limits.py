"""Limits at run time while workers are killed, and their cost.

    python -m bench.limits [--quick]

kills      50 keys, at most 3 tasks of each at once, and worker processes that are killed. Every task writes its start
           and its end into a list in the store. Reading the whole list gives the exact maximum of tasks per key, not a
           sample. A process is stopped before its death is noted, and then killed.
backlog    claims in a namespace with a million blocked tasks and in an empty one, in turns, on one server
tenants    how long a tenant's only task waits to start: next to a tenant with a million tasks, and alone
cost       submit, claim and commit of a task with limits that are never reached, compared with a task without limits
"""

from __future__ import annotations

import contextlib
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import ledger as moves
from bench.costs import BARE, compare_lives
from bench.fleets import Table, a_fleet, leave, quick
from bench.ledger import NAME, PAYLOAD, Bench
from bench.limit_jobs import HISTORY, MOST, counted, nap
from relier.ledger import keys
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.records import Submission, new_task_id
from relier.settings import Settings
from relier.submit.client import use_client
from tests.support.fleet import Fleet, Member, wait_until

KEYS, PROCESSES = 50, 4
LEASE_S = 3.0
ROUNDS = 40
CLAIMS = 100
TINY = 100
BIG = "tenant:big"


# --- kills ---------------------------------------------------------------------------------------------------------


def kill_workers(fleet: Fleet, tasks: int, kills: int) -> None:
    """Push the tasks, and kill a worker process each time another share of them is done."""
    member = fleet.worker("--processes", str(PROCESSES), modules=("bench.limit_jobs",))
    counted.push_many([(number % KEYS,) for number in range(tasks)])
    for number in range(kills):
        wait_until(lambda share=number * tasks // (kills + 1): done(fleet) >= share, 300, "a share of the tasks")
        kill_one(fleet, member)
    wait_until(lambda: ended(fleet) == tasks, 900, "all tasks")
    member.terminate()


def kill_one(fleet: Fleet, member: Member) -> None:
    """Stop one process, note that it does nothing from here on, and kill it."""
    worker_ids = wait_until(lambda: [each for each in alive(fleet) if is_child(member, each)], 60, "a worker process")
    pid = pid_of(random.choice(worker_ids))
    member.signal(signal.SIGSTOP, pid)
    fleet.store.command("RPUSH", HISTORY, f"killed {pid}")
    member.signal(signal.SIGKILL, pid)


def alive(fleet: Fleet) -> list[str]:
    return [worker.node_id for worker in fleet.stats().alive(LEASE_S) if worker.owned]


def is_child(member: Member, worker_id: str) -> bool:
    return pid_of(worker_id) in member.children()


def pid_of(worker_id: str) -> int:
    return int(worker_id.split(".")[1])


def done(fleet: Fleet) -> int:
    return fleet.stats().counts.get("done", 0)


def ended(fleet: Fleet) -> int:
    return sum(fleet.stats().ended.values())


def most_at_once(lines: list[str]) -> tuple[int, int, int]:
    """Return the most tasks of one key at once, the starts, and the starts that a kill ended."""
    running: dict[str, dict[str, str]] = {}
    dead: set[str] = set()
    most = starts = lost = 0
    for line in lines:
        what, *words = line.split()
        if what == "killed":
            dead.add(words[0])
            for tasks in running.values():
                gone = [run for run, worker_id in tasks.items() if worker_id.split(".")[1] == words[0]]
                lost += len(gone)
                for run in gone:
                    del tasks[run]
            continue
        key, task_id, fence, worker_id = words
        if worker_id.split(".")[1] in dead:
            continue  # sent before the process was stopped, but arrived afterwards
        if what == "+":
            starts += 1
            running.setdefault(key, {})[f"{task_id} {fence}"] = worker_id
            most = max(most, len(running[key]))
        else:
            running[key].pop(f"{task_id} {fence}", None)
    return most, starts, lost


def bench_kills(tasks: int, kills: int) -> Table:
    table = Table(f"{tasks:,} tasks, {KEYS} keys, at most {MOST} of a key at once, {kills} kills of worker processes")
    with a_fleet(LEASE_S) as fleet:
        began = time.monotonic()
        kill_workers(fleet, tasks, kills)
        table.line("seconds", time.monotonic() - began, "s")
        lines = [line.decode() for line in fleet.store.command("LRANGE", HISTORY, 0, -1)]
        most, starts, lost = most_at_once(lines)
        table.line("starts in the history", starts)
        table.line("attempts that a kill ended", lost)
        table.most("most tasks of one key at once, over the whole history", most, MOST)
        stats = fleet.stats()
        table.exactly("tasks done", stats.counts.get("done", 0), tasks)
        table.exactly("tasks dead", stats.counts.get("dead", 0), 0)
        left = [name for name in ("lanes", "waiting", "pacers", "limited") if exists(fleet, name)]
        slots = sum(exists(fleet, "slots", f"key:{key}") for key in range(KEYS))
        table.exactly("slots left at the end", slots, 0)
        table.exactly("other traces of limits left at the end", len(left), 0)
        table.exactly("slots that a sweep had to repair", stats.counts.get("slots_freed", 0), 0)
    table.exactly("findings of rl audit", 0, 0)  # otherwise a_fleet has raised
    return table


def exists(fleet: Fleet, name: str, of: str = "") -> bool:
    return bool(fleet.store.command("EXISTS", keys.spell(fleet.ledger.prefix, name, of)))


# --- backlog and tenants -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def two_namespaces() -> Iterator[tuple[Fleet, Fleet]]:
    """Create a busy and an idle namespace on one server."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        fleets = []
        for name in ("calm", "busy"):
            url = f"embedded://{folder}/store"
            settings = Settings(redis_url=url, namespace=name, heartbeat_ttl=LEASE_S, admission_limit=0)
            fleets.append(Fleet(settings, Path(folder) / name))
        try:
            yield fleets[1], fleets[0]
        finally:
            for fleet in fleets:
                fleet.close()


def bench_backlog(blocked: int) -> tuple[Table, Table]:
    with two_namespaces() as (busy, calm):
        began = time.monotonic()
        use_client(busy.client)
        for first in range(0, blocked, 50_000):
            nap.push_many([("big", 0.05)] * min(50_000, blocked - first))
        filled = time.monotonic() - began
        claims = bench_claims(busy, calm, blocked)
        claims.line(f"seconds to push {blocked:,} limited tasks", filled, "s")
        return claims, bench_tenants(busy, calm, blocked)


def bench_claims(busy: Fleet, calm: Fleet, blocked: int) -> Table:
    """Compare claims in a namespace with blocked tasks to claims in one without: tasks without limits, tasks of another
    key, and no task."""
    table = Table(f"a claim beside {blocked:,} tasks that wait for one key, and beside none: store time")
    sides = {fleet.settings.namespace: Bench(fleet.store, fleet.settings) for fleet in (busy, calm)}
    first = sides["busy"].store.run(sides["busy"].claims(1, 100)[0])
    if len(first.tasks) != MOST:
        raise SystemExit(f"{len(first.tasks)} of the blocked tasks were claimed, not {MOST}")
    for number in range(ROUNDS):
        for bench in list(sides.values())[:: 1 if number % 2 else -1]:
            for kind, limits in (("plain", ()), ("limited", (RunLimit("other", "other", LimitNumbers(10_000)),))):
                claim_round(bench, kind, limits)
            bench.measure("nothing", CLAIMS, lambda bench=bench: bench.all_of(bench.claims(CLAIMS, 1)))
    for kind, what in (
        ("plain", "claim of a task without limits"),
        ("limited", "claim of a task of another key"),
        ("nothing", "claim that finds nothing"),
    ):
        beside, alone = (statistics.median(sides[name].costs[kind]) for name in ("busy", "calm"))
        table.line(f"{what}, beside none", alone, "µs")
        table.line(f"{what}, beside {blocked:,}", beside, "µs")
        ratios = [b / c for b, c in zip(sides["busy"].costs[kind], sides["calm"].costs[kind], strict=True)]
        table.most(f"{what}: median ratio", round(statistics.median(ratios), 3), 1.1, "×")
    sides["busy"].store.run(sides["busy"].ledger.release([task.lease for task in first.tasks]))
    for bench in sides.values():
        bench.store.run(bench.ledger.retire(bench.boot))
    return table


def claim_round(bench: Bench, kind: str, limits: tuple[RunLimit, ...]) -> None:
    tasks = [Submission(id=new_task_id(), name=NAME, payload=PAYLOAD, limits=limits) for _ in range(CLAIMS)]
    bench.store.run(bench.ledger.submit(tasks))
    claims = bench.measure(kind, CLAIMS, lambda: bench.all_of(bench.claims(CLAIMS, 1)))
    leases = [task.lease for claim in claims for task in claim.tasks]
    if len(leases) != CLAIMS:
        raise SystemExit(f"{kind}: claimed {len(leases)} of {CLAIMS}")
    bench.all_of(bench.ledger.commit([(lease, None, ())]) for lease in leases)


def bench_tenants(busy: Fleet, calm: Fleet, blocked: int) -> Table:
    """Measure the time from the push of a tenant's only task to its claim, both by the store's clock."""
    table = Table(f"the only task of a tenant: from its push to its start, beside a tenant with {blocked:,} and alone")
    waits: dict[str, list[float]] = {"busy": [], "calm": []}
    for fleet in (busy, calm):
        fleet.worker(modules=("bench.limit_jobs",))
    wait_until(lambda: owned(busy) >= MOST, 60, "the large tenant runs")
    for number in range(TINY):
        for fleet in (busy, calm):
            waits[fleet.settings.namespace].append(1000 * time_to_start(fleet, number))
    for name, what in (("calm", "alone"), ("busy", f"beside {blocked:,}")):
        table.line(f"{what}: p50", statistics.median(waits[name]), "ms")
        table.line(f"{what}: longest", max(waits[name]), "ms")
    more = statistics.median(b - c for b, c in zip(waits["busy"], waits["calm"], strict=True))
    table.most("median of what it waits longer", round(more, 3), 5.0, "ms")
    running = int(busy.store.command("ZCARD", keys.spell(busy.ledger.prefix, "slots", BIG)))
    table.most("tasks of the large tenant that run meanwhile", running, MOST)
    return table


def owned(fleet: Fleet) -> int:
    return sum(worker.owned for worker in fleet.stats().workers)


def time_to_start(fleet: Fleet, number: int) -> float:
    use_client(fleet.client)
    task_id = nap.push(f"tiny{number}", 0.0).id
    fleet.wait_done([task_id], 60)
    record = fleet.get(task_id).record
    return (int(record.fence) - record.spec.at_us) / 1e6  # a fence is the time of its claim (µs)


# --- cost ----------------------------------------------------------------------------------------------------------


class LimitedBench(Bench):
    """Measure the life of tasks with limits that are never reached, with 50 keys."""

    limits: tuple[str, ...] = ("tenant",)

    def submissions(self, n: int) -> list[Submission]:
        plain = super().submissions(n)
        return [replaced(task, self._limits(number)) for number, task in enumerate(plain)]

    def _limits(self, number: int) -> tuple[RunLimit, ...]:
        made = {
            "tenant": RunLimit("tenant:{t}", f"tenant:{number % KEYS}", LimitNumbers(10_000)),
            "rate": RunLimit("api", "api", LimitNumbers(0, 1, 1_000_000)),
        }
        return tuple(made[name] for name in self.limits)


class TwiceLimitedBench(LimitedBench):
    """Measure tasks with two limits: a concurrency per tenant, and a rate for all."""

    limits = ("tenant", "rate")


def replaced(task: Submission, limits: tuple[RunLimit, ...]) -> Submission:
    return Submission(id=task.id, name=task.name, payload=task.payload, limits=limits)


def bench_cost(rounds: int) -> Table:
    kinds = {BARE: Bench, "one limit": LimitedBench, "two limits, one a rate": TwiceLimitedBench}
    title = "store time per task: limits that are never reached, beside none (least of several rounds)"
    return compare_lives(title, kinds, rounds, (1, 100))


def main() -> None:
    short = quick()
    if short:
        moves.TASKS = 200
    tables = [bench_cost(5 if short else 15)]
    tables += bench_backlog(100_000 if short else 1_000_000)
    tables.append(bench_kills(*((2_000, 10) if short else (20_000, 100))))
    leave(*tables)


if __name__ == "__main__":
    main()
