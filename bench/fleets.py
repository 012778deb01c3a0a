"""Shared by the recovery benchmarks: a fleet of real workers on an embedded store, a table, and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from relier.settings import Settings
from tests.support.fleet import Fleet


def quick() -> bool:
    """Parse `--quick`, the only option of these benches."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds: does it run at all")
    return bool(parser.parse_args().quick)


@contextlib.contextmanager
def a_fleet(lease: float, **more: Any) -> Iterator[Fleet]:
    """Start workers with this lease on their own store. Audit the ledger at the end. `more`: further settings."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        settings = Settings(
            redis_url=f"embedded://{folder}/store", namespace="bench", heartbeat_ttl=lease, admission_limit=0, **more
        )
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `timeout` also ends the started processes
        fleet = Fleet(settings, Path(folder) / "fleet")
        try:
            yield fleet
            fleet.check()
        finally:
            fleet.close()


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(1e6 * share) * len(ordered) // 10**6) - 1))]


class Table:
    """Figures next to their targets. `missed` counts the targets that were not met."""

    def __init__(self, title: str) -> None:
        self.missed = 0
        print(f"\n{title}")

    def line(self, what: str, value: float, unit: str = "", target: str = "", met: bool = True) -> None:
        verdict = f"   target {target:<12} {'met' if met else 'MISSED'}" if target else ""
        shown = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3f}"
        print(f"  {what:<58}{shown:>12} {unit:<3}{verdict}", flush=True)
        self.missed += not met

    def most(self, what: str, value: float, limit: float, unit: str = "") -> None:
        self.line(what, value, unit, f"≤ {limit:g} {unit}", value <= limit)

    def exactly(self, what: str, value: float, wanted: float, unit: str = "") -> None:
        self.line(what, value, unit, f"= {wanted:g} {unit}", value == wanted)

    def times(self, what: str, seconds: Sequence[float], limit: float | None = None) -> None:
        """Print p50, p99 and the longest time. The limit applies to p99."""
        self.line(f"{what}: tasks measured", len(seconds))
        self.line(f"{what}: p50", quantile(seconds, 0.5), "s")
        if limit is None:
            self.line(f"{what}: p99", quantile(seconds, 0.99), "s")
        else:
            self.most(f"{what}: p99", quantile(seconds, 0.99), limit, "s")
        self.line(f"{what}: longest", max(seconds), "s")


def leave(*tables: Table) -> None:
    """Exit with a non-zero code if a target was missed."""
    missed = sum(table.missed for table in tables)
    print(f"\n{f'{missed} targets MISSED' if missed else 'every target met'}")
    raise SystemExit(1 if missed else 0)
