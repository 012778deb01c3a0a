"""Compare Relier's native worker with other task queues: one machine, one Redis, one run.

    python -m bench.native [--quick] [--only celery,taskiq] [--rounds 3]

Run it from the repository's root, in an environment of requirements/bench.lock and this package.

In each round all systems do the same work, and take turns within each measure, so that all see the same conditions.
The figures are ratios within a round, and their medians. Differences under 1.4 × are noise.

    no-ops      a producer sends them one by one, another in bulk; then the worker is started and runs all of them
    sleeps      of 10 ms: all are sent first, then a worker with many slots runs them
    latency     100 tasks a second to a worker that is otherwise idle: from before the send to the task's first line

Progress is measured from outside, by reading the queue every 20 ms. All figures of a drain (rate, the worker's CPU,
what Redis spent) are taken between 10 % and 90 % done, so that neither the start nor the end counts.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers import LATENESS_VARIABLE, ORDER, URL_VARIABLE, Kind, Load, Peer, lateness, peer, processes, server
from bench.peers.processes import BenchError, Worker

LOOK_EVERY = 0.02
STALLED = 60.0  # seconds without a done task, including the start of the worker
SENDING = 300.0  # the most seconds that a producer may take
SETTLE = 1.0  # seconds that a worker is idle before its memory is read
OURS = "relier"
YARDSTICK = "celery"

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Mark:
    """One moment of a drain."""

    at: float
    left: int
    looks: int
    worker_cpu: float
    spent: server.Spent


@dataclass(slots=True)
class Bench:
    """One run: its server, its folder, and the figures of every system, round by round."""

    redis: Any
    url: str
    folder: Path
    divisor: int
    figures: dict[str, list[Figures]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    def env(self, system: Peer) -> dict[str, str]:
        return {URL_VARIABLE: self.url, LATENESS_VARIABLE: str(self.folder / "lateness"), **system.env(self.url)}

    def load(self, system: Peer) -> Load:
        return system.load.shortened(self.divisor)

    def produce(self, system: Peer, way: str, n: int) -> tuple[int, float]:
        """Return how many tasks the producer sent, and how many per second."""
        told = processes.run(
            ["-m", "bench.peers.produce", system.tasks, way, str(n)], self.env(system), seconds=SENDING
        )
        answer = json.loads(told.splitlines()[-1])
        return answer["sent"], n / answer["seconds"]

    def worker(self, system: Peer, kind: Kind) -> Any:
        log = self.folder / f"{system.name}-{kind}.log"
        return processes.working(system.worker(kind), self.env(system), log)

    # --- the measures: each answers with figures of one system in one round

    def noops(self, system: Peer) -> Figures:
        load = self.load(system)
        sent_one, one = self.produce(system, "one", load.one)
        sent_bulk, bulk = self.produce(system, "bulk", load.bulk)
        drained = self.drain(system, "noop", sent_one + sent_bulk)
        return {"one": one, "bulk": bulk, **drained}

    def sleeps(self, system: Peer) -> Figures:
        sent, _ = self.produce(system, "sleeps", self.load(system).sleeps)
        return {"sleeps": self.drain(system, "sleep", sent)["drain"]}

    def latency(self, system: Peer) -> Figures:
        n = 1000 // self.divisor
        self.produce(system, "one", 1)  # once one is done, the worker is up
        with self.worker(system, "latency") as worker:
            self.wait_until_done(system, worker)
            time.sleep(SETTLE)
            memory = worker.memory()
            self.produce(system, "rate", n)
            self.wait_until_done(system, worker)
            worker.check()
        late = lateness.read(self.folder / "lateness")
        (self.folder / "lateness").unlink(missing_ok=True)
        if len(late) != n:
            raise BenchError(f"{len(late)} of {n} stamps ran")
        p50, p99 = late[n // 2], late[n * 99 // 100]
        return {"p50": 1e3 * p50, "p99": 1e3 * p99, "rss": memory.rss, "pss": memory.pss, "procs": memory.processes}

    def drain(self, system: Peer, kind: Kind, sent: int) -> Figures:
        if (found := system.left(self.redis)) != sent:
            raise BenchError(f"{sent} were sent and {found} are queued")
        with self.worker(system, kind) as worker:
            early, late = self.marks(system, worker, sent)
            self.wait_until_done(system, worker)
            worker.check()
        if against := system.verify(self.url):
            raise BenchError(against)
        return between(system, early, late)

    def marks(self, system: Peer, worker: Worker, sent: int) -> tuple[Mark, Mark]:
        """Return the first polls that find 10 % and 90 % done."""
        found: list[Mark] = []
        for looks, left in enumerate(self.looks(system, worker), 1):
            if left <= sent * (0.9, 0.1)[len(found)]:
                found.append(Mark(time.perf_counter(), left, looks, worker.cpu_seconds(), server.spent(self.redis)))
                if len(found) == 2:
                    break
        early, late = found
        if early.left - late.left < sent / 2:
            raise BenchError(f"{sent} tasks are too few for a look every {1e3 * LOOK_EVERY:.0f} ms")
        return early, late

    def wait_until_done(self, system: Peer, worker: Worker) -> None:
        """Wait until nothing is left, twice in a row: a task that moves in two steps is in neither place for a
        moment."""
        empty = 0
        for left in self.looks(system, worker):
            empty = 0 if left else empty + 1
            if empty == 2:
                return

    def looks(self, system: Peer, worker: Worker) -> Iterator[int]:
        """Yield the number of tasks left, every 20 ms, as long as it decreases."""
        least, moved = None, time.monotonic()
        while True:
            left = system.left(self.redis)
            yield left
            now = time.monotonic()
            if least is None or left < least:
                least, moved = left, now
            elif now - moved > STALLED:
                worker.check()
                raise BenchError(f"{left} tasks are left, and none was done for {STALLED:.0f} s")
            elif worker.process.poll() is not None:
                worker.check()
            time.sleep(LOOK_EVERY)

    # --- rounds

    def run(self, names: Sequence[str], rounds: int) -> None:
        systems = [peer(name) for name in names]
        measures: tuple[Callable[[Peer], Figures], ...] = (self.noops, self.sleeps, self.latency)
        self.figures = {name: [{} for _ in range(rounds)] for name in names}
        for turn in range(rounds):
            for measure in measures:
                for i in range(len(systems)):  # the first one goes last in the next round
                    self.take(systems[(i + turn) % len(systems)], turn, measure)

    def take(self, system: Peer, turn: int, measure: Callable[[Peer], Figures]) -> None:
        if system.name in self.lost:
            return
        self.redis.flushall()
        begin = time.monotonic()
        try:
            found = measure(system)
        except BenchError as error:
            self.lost[system.name] = str(error)
            note(f"round {turn + 1}  {measure.__name__:<8} {system.name:<9} FAILED: {error}")
            return
        self.figures[system.name][turn].update(found)
        figures = "  ".join(f"{name} {value:,.4g}" for name, value in found.items())
        note(f"round {turn + 1}  {measure.__name__:<8} {system.name:<9} {time.monotonic() - begin:5.1f} s   {figures}")


def between(system: Peer, early: Mark, late: Mark) -> Figures:
    tasks = early.left - late.left
    calls: dict[str, int] = {}
    micros: dict[str, int] = {}
    for name, (n, usec) in late.spent.commands.items():
        n0, usec0 = early.spent.commands.get(name, (0, 0))
        calls[name], micros[name] = n - n0, usec - usec0
    looks = late.looks - early.looks
    sent = [name for name in calls if name in (system.sends or calls.keys() - {*system.looks, "info"})]
    run = sum(calls.values()) - calls.get("info", 0) - looks * len(system.looks)
    return {
        "drain": tasks / (late.at - early.at),
        "worker_cpu": (late.worker_cpu - early.worker_cpu) / tasks * 10_000,
        "commands_sent": sum(calls[name] for name in sent) / tasks,
        "commands_run": run / tasks,
        "redis_us": sum(micros[name] for name in sent) / tasks,
        "redis_cpu_us": (late.spent.cpu_us - early.spent.cpu_us) / tasks,
    }


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- the report


class Report:
    def __init__(self, bench: Bench) -> None:
        self.rows = {name: rounds for name, rounds in bench.figures.items() if name not in bench.lost}

    def median(self, name: str, figure: str) -> float:
        return statistics.median(self.each(name, figure))

    def each(self, name: str, figure: str) -> list[float]:
        return [found[figure] for found in self.rows.get(name, ())]

    def ratios(self, name: str, figure: str, others: Sequence[str], other_figure: str | None = None) -> list[float]:
        """Return, round by round, the ratio of Relier to the best of the others. Empty if one of them is missing."""
        theirs = [self.each(other, other_figure or figure) for other in others]
        if not all(theirs):
            return []
        return [mine / max(best) for mine, *best in zip(self.each(name, figure), *theirs, strict=False)]

    def against(self, name: str, figure: str) -> str:
        ratios = self.ratios(name, figure, [YARDSTICK])
        return f"{self.median(name, figure):,.0f}" + (f" ({statistics.median(ratios):.1f} ×)" if ratios else "")

    def table(self) -> None:
        head = (
            *("system", "enqueue/s", "in bulk/s", "no-op drain/s", "10 ms sleeps/s", "slots", "p50 / p99 ms"),
            *("commands sent / run", "Redis µs, CPU µs", "worker CPU s/10k", "idle RSS / PSS MB"),
        )
        lines = [head, *(self.row(name) for name in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        for first, *rest in lines:
            cells = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
            print(first.ljust(widths[0]), *cells, sep="  ")

    def row(self, name: str) -> tuple[str, ...]:
        def of(figure: str) -> float:
            return self.median(name, figure)

        return (
            name,
            self.against(name, "one"),
            self.against(name, "bulk"),
            self.against(name, "drain"),
            self.against(name, "sleeps"),
            str(peer(name).slots),
            f"{of('p50'):.1f} / {of('p99'):.1f}",
            f"{of('commands_sent'):.2f} / {of('commands_run'):.2f}",
            f"{of('redis_us'):.1f}, {of('redis_cpu_us'):.0f}",
            f"{of('worker_cpu'):.2f}",
            f"{of('rss'):.0f} / {of('pss'):.0f} ({of('procs'):.0f})",
        )

    def targets(self) -> None:
        others = [name for name in ORDER if name not in {OURS, YARDSTICK}]
        at_least = [
            ("no-op drain of one process, to Celery's", self.ratios(OURS, "drain", [YARDSTICK]), 8),
            ("no-op drain, to the better of the others", self.ratios(OURS, "drain", others), 2),
            ("10 ms sleeps at 1,000 slots, to the best", self.ratios(OURS, "sleeps", [YARDSTICK, *others]), 3),
            ("apush one by one, to Celery's delay", self.ratios(OURS, "one", [YARDSTICK]), 1.5),
            ("apush_many, to Celery's delay", self.ratios(OURS, "bulk", [YARDSTICK], "one"), 20),
        ]
        at_most = [
            ("latency p50 at 100/s", "p50", 2, "ms"),
            # Measured by the clock: on a busy machine, this includes the time in which Redis waited for a core.
            ("Redis per task, time in commands", "redis_us", 60, "µs"),
            ("Redis per task, CPU of its process", "redis_cpu_us", 60, "µs"),
            ("idle worker (RSS)", "rss", 60, "MB"),
        ]
        for what, ratios, target in at_least:
            tell(what, ratios, f"≥ {target:g} ×", lambda found, target=target: found >= target)
        for what, figure, limit, unit in at_most:
            tell(what, self.each(OURS, figure), f"≤ {limit:g} {unit}", lambda found, limit=limit: found <= limit)


def tell(what: str, rounds: list[float], target: str, met: Callable[[float], bool], digits: int = 1) -> None:
    """Print a ratio. The median decides; the range next to it shows how reliable it is."""
    if not rounds:
        print(f"  {what:<44}{'–':>8}{'':>18}   target {target:<10}not measured")
        return
    median, spread = statistics.median(rounds), f"({min(rounds):.{digits}f} – {max(rounds):.{digits}f})"
    print(f"  {what:<44}{median:>8.{digits}f}{spread:>18}   target {target:<10}{'met' if met(median) else 'MISSED'}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.native", description="Our native worker beside its peers.")
    parser.add_argument("--quick", action="store_true", help="one short round: does everything run?")
    parser.add_argument("--only", type=names, default=ORDER, help=f"some of {','.join(ORDER)}")
    parser.add_argument("--rounds", type=int, default=None, help="default 3")
    chosen = parser.parse_args()
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 3)
    return chosen


def names(text: str) -> list[str]:
    chosen = text.split(",")
    if unknown := [name for name in chosen if name not in ORDER]:
        raise argparse.ArgumentTypeError(f"{unknown} are not among {', '.join(ORDER)}")
    return [name for name in ORDER if name in chosen]


def main() -> int:
    chosen = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `timeout` also ends the started processes
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True, prefix="relier-bench-") as folder,
        server.serving(Path(folder)) as (url, redis),
    ):
        machine = f"Python {sys.version.split()[0]}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        print(f"Redis {redis.info('server')['redis_version']}, AOF everysec; {machine}")
        print(f"Medians of {chosen.rounds} round(s); × = to Celery in the same round\n", flush=True)
        bench = Bench(redis, url, Path(folder), divisor=4 if chosen.quick else 1)
        bench.run(chosen.only, chosen.rounds)
    report = Report(bench)
    report.table()
    if OURS in chosen.only:
        print("\nOurs beside its targets")
        report.targets()
    for name, why in bench.lost.items():
        print(f"\n{name} was not measured: {why}")
    return 1 if bench.lost else 0


if __name__ == "__main__":
    sys.exit(main())
