"""Celery with Relier compared with plain Celery: the same pool and concurrency, in one run, taking turns.

    python -m bench.celery_engine [--quick] [--rounds 3]

Run it from the repository's root, in an environment of requirements/bench.lock and this package. native.py describes
how it measures. The figures are ratios within a round, and their medians.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
from pathlib import Path

from bench.native import Bench, Figures, Report, tell
from bench.peers import Peer, peer, server

NAP_S = "0.02"


class Engines(Bench):
    """`nap`: sleeps of 20 ms instead of 10."""

    nap = False

    def env(self, system: Peer) -> dict[str, str]:
        return super().env(system) | ({"BENCH_SLEEP_SECONDS": NAP_S} if self.nap else {})

    def naps(self, system: Peer) -> Figures:
        self.nap = True
        try:
            return {"naps": self.sleeps(system)["sleeps"]}
        finally:
            self.nap = False

    def rounds(self, number: int) -> None:
        plain, adopted, ours = peer("plain"), peer("adopted"), peer("asyncio")
        self.figures = {name: [{} for _ in range(number)] for name in ("plain", "adopted", "asyncio")}
        for turn in range(number):
            for measure, systems in (
                (self.noops, (plain, adopted, ours)),
                (self.naps, (plain, adopted)),
                (self.sleeps, (plain, ours)),
                (self.latency, (plain, adopted)),
            ):
                for system in systems if turn % 2 == 0 else systems[::-1]:
                    self.take(system, turn, measure)


def targets(report: Report) -> None:
    at_least = [
        ("no-op throughput, adopted to plain", report.ratios("adopted", "drain", ["plain"]), 0.9),
        ("20 ms tasks, adopted to plain", report.ratios("adopted", "naps", ["plain"]), 0.98),
        ("apush one by one, to .delay()", report.ratios("asyncio", "one", ["plain"]), 1.5),
        ("push_many, to .delay()", report.ratios("asyncio", "bulk", ["plain"], "one"), 20),
        ("10 ms sleeps, asyncio pool to prefork of 2", report.ratios("asyncio", "sleeps", ["plain"]), 15),
    ]
    for what, ratios, target in at_least:
        tell(what, ratios, f"≥ {target:g} ×", lambda found, target=target: found >= target)
    commands = report.ratios("adopted", "commands_sent", ["plain"])
    tell("Redis commands sent per task, to plain", commands, "≤ 1 ×", lambda found: found <= 1)
    tell("Redis commands run per task (in scripts too)", report.each("adopted", "commands_run"), "", lambda _: True)
    more = [
        ours - theirs for ours, theirs in zip(report.each("adopted", "pss"), report.each("plain", "pss"), strict=False)
    ]
    tell("idle memory (PSS) above plain's", more, "≤ 15 MB", lambda found: found <= 15)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.celery_engine")
    parser.add_argument("--quick", action="store_true", help="one short round: does everything run?")
    parser.add_argument("--rounds", type=int, default=None, help="default 3")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True, prefix="relier-bench-") as folder,
        server.serving(Path(folder)) as (url, redis),
    ):
        bench = Engines(redis, url, Path(folder), divisor=4 if chosen.quick else 1)
        bench.rounds(chosen.rounds or (1 if chosen.quick else 3))
    report = Report(bench)
    for name in report.rows:
        told = {figure: statistics.median(report.each(name, figure)) for figure in report.rows[name][0]}
        print(name, "  ".join(f"{figure} {value:,.4g}" for figure, value in told.items()))
    targets(report)
    for name, why in bench.lost.items():
        print(f"\n{name} was not measured: {why}")
    return 1 if bench.lost else 0


if __name__ == "__main__":
    sys.exit(main())
