"""What it costs a worker to be observed: everything on beside everything off, in one run, in turns.

    python -m bench.observability [--quick] [--rounds 5] [--each]

On: metrics on a port that is scraped once a second, outcomes for objectives, events always, traces that are sampled
out. Off: none of them. `--each` also measures each of them alone.

Both run empty tasks, so these are the highest shares that observing can have. On a machine that does other work, CPU
time and function calls per task are more reliable than tasks per second. A call costs little or much, so calls have no
target: they show where the cost is.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.native import Bench, tell
from bench.peers import Kind
from bench.peers.processes import BenchError
from bench.peers.relier_native import RelierNative
from bench.peers.server import free_port, serving
from relier.monitoring.asking import fetch

TASKS = 40_000
COUNTED = (1000, 4000)  # tasks of the two runs whose function calls are compared
SCRAPE_S = 1.0
TARGET = 0.9
FIGURES = ("drain", "worker_cpu", "redis_us")
NOTHING = {"RELIER_EVENTS": "never", "RELIER_SLO": "off"}


class ObservedWorker(RelierNative):
    """A worker with metrics, traces, both or neither. `counting`: the file for its number of function calls."""

    def __init__(self, name: str, *, metrics: bool = False, traces: bool = False, **env: str) -> None:
        self.name = name  # type: ignore[misc]
        self.port = free_port() if metrics else 0
        self.counting: Path | None = None
        self._env = NOTHING | env
        if traces:
            self.tasks = "bench.peers.relier_traced_tasks"  # type: ignore[misc]

    def worker(self, kind: Kind) -> list[str]:
        command = super().worker(kind)
        counted = ["-m", "bench.peers.counted_calls", str(self.counting)]
        return command if self.counting is None else [*counted, *command[2:]]

    def env(self, url: str) -> Mapping[str, str]:
        port = {"RELIER_METRICS_PORT": str(self.port)} if self.port else {}
        return {**super().env(url), **self._env, **port}

    @contextmanager
    def scraped(self) -> Iterator[None]:
        """Scrape the worker, as Prometheus does but more often, while the block runs."""
        ended = threading.Event()
        thread = threading.Thread(target=self._scrape, args=(ended,))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _scrape(self, ended: threading.Event) -> None:
        while self.port and not ended.wait(SCRAPE_S):
            with suppress(OSError):
                fetch("127.0.0.1", self.port, "/metrics", SCRAPE_S)


def sides(each: bool) -> list[ObservedWorker]:
    on = {"RELIER_EVENTS": "always", "RELIER_SLO": "on"}
    alone = [
        ObservedWorker("metrics alone", metrics=True),
        ObservedWorker("outcomes alone", RELIER_SLO="on"),
        ObservedWorker("events alone", RELIER_EVENTS="always"),
        ObservedWorker("traces alone", traces=True),
    ]
    return [ObservedWorker("off"), ObservedWorker("on", metrics=True, traces=True, **on), *(alone if each else [])]


def drain(bench: Bench, side: ObservedWorker, n: int) -> dict[str, float]:
    bench.redis.flushall()
    sent, _ = bench.produce(side, "bulk", n)
    with side.scraped():
        return bench.drain(side, "noop", sent)


def calls_per_task(bench: Bench, side: ObservedWorker, folder: Path) -> float:
    """Return the function calls that one more task costs."""
    counts = []
    for n in COUNTED:
        bench.redis.flushall()
        bench.produce(side, "bulk", n)
        side.counting = folder / f"calls-{side.name}-{n}"
        with bench.worker(side, "noop") as worker:
            bench.wait_until_done(side, worker)
        counts.append(int(side.counting.read_text()))
        side.counting = None
    return (counts[1] - counts[0]) / (COUNTED[1] - COUNTED[0])


def report(found: Mapping[str, list[dict[str, float]]], calls: Mapping[str, float]) -> bool:
    """Print all figures. Return whether the targets are met."""
    print(f"{'':<16}{'tasks/s':>10}{'worker CPU µs/task':>20}{'calls/task':>12}{'Redis µs/task':>15}")
    for name, rounds in found.items():
        rate, cpu, redis = (statistics.median(one[key] for one in rounds) for key in FIGURES)
        print(f"{name:<16}{rate:>10,.0f}{100 * cpu:>20.1f}{calls[name]:>12.1f}{redis:>15.1f}")
    print("\nOn beside off, in the same round")
    pairs = list(zip(found["off"], found["on"], strict=True))
    ratios = {
        "tasks per second": [on["drain"] / off["drain"] for off, on in pairs],
        "tasks per second of worker CPU": [off["worker_cpu"] / on["worker_cpu"] for off, on in pairs],
    }
    for what, each in ratios.items():
        tell(what, each, f"≥ {TARGET:g} ×", lambda ratio: ratio >= TARGET, digits=2)
    print(f"  function calls per task: {calls['off']:.1f} off, {calls['on']:.1f} on")
    return all(statistics.median(each) >= TARGET for each in ratios.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.observability", description="What it costs to be observed.")
    parser.add_argument("--quick", action="store_true", help="one short round: does everything run?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--each", action="store_true", help="also each part alone")
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True, prefix="relier-bench-") as name,
        serving(Path(name)) as (url, redis),
    ):
        folder = Path(name)
        bench = Bench(redis, url, folder, divisor=1)
        systems, found = sides(chosen.each), dict[str, list[dict[str, float]]]()
        calls = {side.name: calls_per_task(bench, side, folder) for side in systems}
        for turn in range(1 if chosen.quick else chosen.rounds):
            for i in range(len(systems)):
                side = systems[(i + turn) % len(systems)]
                try:
                    found.setdefault(side.name, []).append(drain(bench, side, TASKS // (4 if chosen.quick else 1)))
                except BenchError as error:
                    raise SystemExit(f"{side.name}: {error}") from None
    return 0 if report({side.name: found[side.name] for side in systems}, calls) else 1


if __name__ == "__main__":
    sys.exit(main())
