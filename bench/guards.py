"""The cost of each guard per task, compared with a bare task: CPU of producer, worker and Redis (µs), and round trips.

    python -m bench.guards [--quick]

This process is producer and worker; Redis is an embedded server. In each round every guard pushes some tasks, one by
one, and a worker runs them. The guards take turns, in a different order each time. A cost is the median difference from
the bare task of the same round. Redis reports its own time: in scripts (commandstats), and the CPU of its whole
process, which includes reading requests and writing the append-only file.

One by one, Redis wakes up for each task and finds its caches cold. So the script of a submit is measured under load as
well, in pipelines of a hundred, as bench/ledger.py does for all moves: there the target of admission applies.

The last part compares a submit under an admission limit with a bare PING, in turns, over the same kind of connection.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bench.fleets import Table, leave, quantile, quick
from relier import AdmissionRejectedError, Admit, RlTask, TaskContext, rl_task
from relier.engines.worker import Worker, WorkerOptions
from relier.ledger.records import Submission, new_task_id
from relier.settings import Settings
from relier.store.call import Call, Durability
from relier.submit.client import Client, use_client
from relier.submit.guards import usual_admission
from relier.submit.push import NO_OPTIONS, submission_of

TASKS = 500
PIPELINE = 100
AT_A_TIME = 50  # pushes per turn of a guard
WAITING = 1  # the same, if each push waits for a disk
LIMIT, WINDOW_S = 100_000, 1.0  # never reached
BARE, NOISE = "bare", "bare, once more: what is noise"
ADMISSIONS = "admission, global", "admission, global and by key"
KEYED = "idempotent, by arguments", "idempotent, by a key"
SENT = (
    "evalsha",
    "waitaof",
)  # sent by producers and workers, except doorbells; the rest of commandstats is inside scripts
CPU = ("used_cpu_user", "used_cpu_sys")
REDIS_MOST_US, PING_MOST = 5.0, 2.0
PING, ADMITTED, REFUSED = "a bare PING", "submit that passes a limit", "submit that is refused: the check alone"


class Clock:
    """Take this process's CPU time when 10 % and when 90 % of a round's tasks have begun, so that neither start nor end
    counts.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.marks: list[float] = []

    def tick(self) -> None:
        self.begun += 1
        if self.begun in (TASKS // 10, TASKS * 9 // 10):
            self.marks.append(time.process_time())

    def us_per_task(self) -> float:
        early, late = self.marks
        return 1e6 * (late - early) / (TASKS * 9 // 10 - TASKS // 10)


clock = Clock()


async def plain(tenant: str, cents: int) -> int:  # noqa: ARG001 - for the limit
    clock.tick()
    return cents


async def in_a_step(tenant: str, cents: int, ctx: TaskContext) -> int:  # noqa: ARG001 - for the limit
    clock.tick()
    return await ctx.step("charge", charged, cents)


async def charged(cents: int) -> int:
    return cents


async def with_checkpoint(tenant: str, cents: int, ctx: TaskContext) -> int:  # noqa: ARG001 - for the limit
    clock.tick()
    await ctx.set_partial({"charged": cents})
    return cents


def task(name: str, fn: Callable[..., Any] = plain, **options: Any) -> RlTask[Any, Any]:
    return rl_task(name=f"shop.tasks.billing.{name}", **options)(fn)


def a_key() -> str:
    return f"2026-11:{base64.b64encode(os.urandom(32)).decode()}"


class Spent(NamedTuple):
    """What Redis has spent so far (µs), and how often it read from a connection: once per round trip."""

    scripts: float
    cpu: float
    reads: int
    inner: int


class Cost(NamedTuple):
    """The cost per task: this process (µs), Redis (µs), round trips, and commands inside scripts."""

    ours: float
    scripts: float
    cpu: float
    trips: float
    inner: float

    def beyond(self, bare: Cost) -> Cost:
        return Cost(*(mine - its for mine, its in zip(self, bare, strict=True)))


@dataclass(slots=True)
class Guard:
    """One guard with its own namespace, and its cost in each round."""

    name: str
    task: RlTask[Any, Any]
    client: Client
    at_a_time: int = AT_A_TIME
    pushed: int = 0
    pushes: list[Cost] = field(default_factory=list)
    works: list[Cost] = field(default_factory=list)

    def push(self) -> None:
        """Push some tasks, one by one."""
        use_client(self.client)
        calls = [(f"tenant {n % 10}", self.pushed + n) for n in range(self.at_a_time)]
        before, began = self.spent(), time.process_time()
        for call in calls:
            self.task.push(*call)
        took = 1e6 * (time.process_time() - began) / self.at_a_time
        self.pushes.append(self._cost(took, before, self.at_a_time))
        self.pushed += self.at_a_time

    def submit(self, n: int) -> Call[Any]:
        """Return the call of one push."""
        call, settings = (f"tenant {n % 10}", n), self.client.settings
        submission = submission_of(self.task, call, {}, NO_OPTIONS, Durability.MEMORY, settings, self.client.keyring)
        guards = self.task.guards
        return self.client.ledger.submit([submission], guards.admission(settings, guards.load(settings, [(call, {})])))

    def work(self) -> None:
        """Run a worker with a hundred slots, from its start to its end."""
        clock.begun, clock.marks = 0, []
        before = self.spent()
        asyncio.run(Worker(self.client, WorkerOptions(max_tasks=TASKS, sweep=False)).run())
        if clock.begun != TASKS:
            raise SystemExit(f"{self.name}: {clock.begun} of {TASKS} tasks ran")
        self.works.append(self._cost(clock.us_per_task(), before, TASKS))

    def _cost(self, ours: float, before: Spent, tasks: int) -> Cost:
        after = self.spent()
        redis = [(late - early) / tasks for early, late in zip(before, after, strict=True)]
        return Cost(ours, *redis)

    def spent(self) -> Spent:
        info = self.client.sync_store.command("INFO", "cpu", "stats", "commandstats").decode()
        lines = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
        stats = {
            name.removeprefix("cmdstat_"): dict(pair.split("=") for pair in line.split(","))
            for name, line in lines.items()
            if name.startswith("cmdstat_")
        }
        scripts = sum(int(stats[name]["usec"]) for name in SENT if name in stats)
        inner = sum(int(each["calls"]) for name, each in stats.items() if name not in {*SENT, "info"})
        return Spent(scripts, 1e6 * sum(float(lines[name]) for name in CPU), int(lines["total_reads_processed"]), inner)


def guards(url: str) -> list[Guard]:
    def guard(name: str, of: RlTask[Any, Any], at_a_time: int = AT_A_TIME, **settings: Any) -> Guard:
        chosen = {"admission_limit": 0, "namespace": f"bench{len(found)}"} | settings
        client = Client(Settings(redis_url=url, **chosen))
        client.open()
        return Guard(name, of, client, at_a_time)

    bare, limits = task("bare"), {"admission_limit": LIMIT, "admission_window": WINDOW_S}
    keyed = task("keyed", admission=Admit("tenant:{tenant}", LIMIT, WINDOW_S))
    found: list[Guard] = []
    found.append(guard(BARE, bare))
    found.append(guard(NOISE, bare))
    found.append(guard(ADMISSIONS[0], bare, **limits))
    found.append(guard(ADMISSIONS[1], keyed, **limits))
    found.append(guard(KEYED[0], task("same", idempotent=True)))
    found.append(guard(KEYED[1], task("named", idempotency_key="{tenant}:{cents}")))
    found.append(guard("signed", bare, signing_keys=a_key()))
    found.append(guard("encrypted", bare, encryption_keys=a_key()))
    found.append(guard("a checkpoint", task("checkpoint", with_checkpoint)))
    found.append(guard("a step", task("step", in_a_step)))
    found.append(guard("durability: fsync", task("safe", durability="fsync"), WAITING))
    return found


def measure(every: list[Guard], rounds: int) -> None:
    """Measure the guards in turns. The first round warms up, and does not count."""
    turns = TASKS // AT_A_TIME
    for _ in range(1 + rounds):
        gc.collect()
        for _ in range(turns):
            for one in shuffled(every):
                one.push()
        for one in shuffled(every):
            if one.at_a_time == AT_A_TIME:
                one.work()
    for one in every:
        del one.pushes[:turns], one.works[:1]


def shuffled(every: list[Guard]) -> list[Guard]:
    """Return the guards in random order. Each guard leaves caches and memory in a different state, so no guard may
    always run after the same one.
    """
    return random.sample(every, len(every))


def typical(costs: list[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


def report(every: list[Guard]) -> dict[str, Cost]:
    """Print the figures of all guards. Return what each adds to a push."""
    head = f"{'CPU':>8}{'scripts':>10}{'Redis CPU':>11}{'round trips':>13}{'commands':>10}"
    bare = every[0]
    print(f"\nPer task, medians of {len(bare.works)} rounds of {TASKS} tasks; µs, and commands inside scripts")
    print(f"  {'':<34}{'a push':>12}{'':>40}     {'its work':>12}")
    print(f"  {'':<34}{head}     {head}")
    added = {}
    for one in every:
        base = (bare.pushes, bare.works) if one is not bare else ([], [])
        shown = [_beyond(costs, of) for costs, of in zip((one.pushes, one.works), base, strict=True)]
        sign = "" if one is bare else "+"
        print(f"  {one.name:<34}{'     '.join(_row(cost, sign) for cost in shown if cost)}")
        if shown[0]:
            added[one.name] = shown[0]
    return added


def _beyond(costs: list[Cost], bare: list[Cost]) -> Cost | None:
    """Return the median of the differences, round by round."""
    pairs = zip(costs, bare, strict=False) if bare else ((cost, Cost(0, 0, 0, 0, 0)) for cost in costs)
    return typical([cost.beyond(its) for cost, its in pairs]) if costs else None


def _row(cost: Cost, sign: str) -> str:
    return (
        f"{cost.ours:>{sign}8.1f}{cost.scripts:>{sign}10.1f}{cost.cpu:>{sign}11.1f}{cost.trips:>{sign}13.3f}"
        f"{cost.inner:>{sign}10.2f}"
    )


def under_load(every: list[Guard], rounds: int) -> dict[str, list[float]]:
    """Return the time in the script of a submit (µs), a hundred per pipeline, for each round."""
    found: dict[str, list[float]] = {one.name: [] for one in every}
    for _ in range(1 + rounds):
        for one in shuffled(every):
            calls = [one.submit(one.pushed + n) for n in range(PIPELINE)]
            one.pushed += PIPELINE
            before = one.spent().scripts
            one.client.sync_store.run_many(calls)
            found[one.name].append((one.spent().scripts - before) / PIPELINE)
    return {name: each[1:] for name, each in found.items()}


class Timed:
    """Ways to the store that are timed side by side. The call is built beforehand, so only the request to the store is
    timed."""

    def __init__(self, url: str) -> None:
        self._free = Client(Settings(redis_url=url, namespace="free", admission_limit=0))
        self._limited = Client(Settings(redis_url=url, namespace="limited", admission_limit=LIMIT, admission_window=1))
        self._full = Client(Settings(redis_url=url, namespace="full", admission_limit=1, admission_window=3600))
        self._task = task("timed")
        self._push(self._full)()
        self._push(self._limited)()

    def ways(self) -> dict[str, Callable[[], Callable[[], Any]]]:
        """Return functions that make one call each, to be timed."""
        store = self._limited.sync_store
        return {
            PING: lambda: lambda: store.command("PING"),
            "submit without limits": lambda: self._submit(self._free),
            ADMITTED: lambda: self._submit(self._limited),
            REFUSED: self._refused,
            "push without limits, arguments to receipt": lambda: self._push(self._free),
            "push that passes a limit, arguments to receipt": lambda: self._push(self._limited),
        }

    def _submit(self, client: Client) -> Callable[[], Any]:
        submission = Submission(id=new_task_id(), name=self._task.name, payload=b"x" * 100)
        call = client.ledger.submit([submission], usual_admission(client.settings))
        return lambda: client.sync_store.run(call)

    def _refused(self) -> Callable[[], Any]:
        ask = self._submit(self._full)

        def call() -> None:
            try:
                ask()
            except AdmissionRejectedError:
                return
            raise SystemExit("a push above the limit was let in")

        return call

    def _push(self, client: Client) -> Callable[[], Any]:
        use_client(client)
        return lambda: self._task.push("tenant 1", 1)

    def measure(self, samples: int) -> dict[str, list[float]]:
        """Return the seconds of each way, in turns."""
        ways = list(self.ways().items())
        took: dict[str, list[float]] = {name: [] for name, _ in ways}
        gc.collect()
        gc.disable()
        for turn in range(samples):
            for i in range(len(ways)):
                name, make = ways[(i + turn) % len(ways)]
                call = make()
                began = time.perf_counter()
                call()
                took[name].append(time.perf_counter() - began)
        gc.enable()
        return took


def report_load(table: Table, loaded: dict[str, list[float]]) -> None:
    """Print the script time under load. As in bench/ledger.py, the minimum of all rounds counts, because it is the cost
    of the code itself. The median is shown next to it: on a shared machine, it includes time in which Redis waited for
    a core."""
    bare = loaded[BARE]
    table.line("submit, bare: the least of all rounds", min(bare), "µs")
    table.line("submit, bare: median", round(statistics.median(bare), 2), "µs")
    for name, each in loaded.items():
        least = min(each) - min(bare)
        more = statistics.median(mine - its for mine, its in zip(each, bare, strict=True))
        if name in ADMISSIONS:
            limits = 1 + ADMISSIONS.index(name)
            table.most(f"{name}: Redis, per limit", round(least / limits, 2), REDIS_MOST_US, "µs")
            table.line(f"{name}: median, per limit", round(more / limits, 2), "µs")
        elif name != BARE:
            table.line(f"{name}: Redis", round(least, 2), "µs")
            table.line(f"{name}: median", round(more, 2), "µs")


def report_times(table: Table, took: dict[str, list[float]]) -> None:
    ping = {share: quantile(took[PING], share) for share in (0.5, 0.99)}
    for name, times in took.items():
        p50, p99 = quantile(times, 0.5), quantile(times, 0.99)
        figures = (
            f"p50 {1e3 * p50:6.3f} ms {p50 / ping[0.5]:5.2f} ×   p99 {1e3 * p99:6.3f} ms {p99 / ping[0.99]:5.2f} ×"
        )
        print(f"  {name:<50}{figures}")
    for name in (ADMITTED, REFUSED):
        table.most(f"{name}: p99 to PING's", quantile(took[name], 0.99) / ping[0.99], PING_MOST, "×")


def main() -> None:
    short = quick()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        url = f"embedded://{folder}/store"
        every = guards(url)
        measure(every, 3 if short else 11)
        loaded = under_load(
            [one for one in every if one.name in {BARE, NOISE, *ADMISSIONS, *KEYED}], 21 if short else 201
        )
        took = Timed(url).measure(500 if short else 10_000)
        for one in every:
            one.client.close()
    added = report(every)
    load = Table(f"Under load, beside the bare submit: medians of {len(loaded[BARE])} rounds")
    report_load(load, loaded)
    table = Table("Round trips, and a check beside a bare PING")
    for name in ADMISSIONS:
        table.exactly(f"{name}: round trips added", round(added[name].trips, 3), 0)
    report_times(table, took)
    leave(load, table)


if __name__ == "__main__":
    main()
