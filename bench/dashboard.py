"""What each page of the dashboard costs with 1,000,000 tasks in 5,000 queues: round trips, script time, time to render.

Every page is opened several times. The store's times are those of its slow log: the slowest command of a page, and all
commands of the page together. Times of a busy machine have outliers, so of each command and of each page the best
repetition counts. The number of round trips is that of the worst.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass, field

from starlette.testclient import TestClient

from bench.fleets import quick
from relier.dashboard.application import local_app
from relier.ledger.ledger import load_scripts
from relier.settings import Settings
from relier.store import SyncStore
from tests.dashboard.crowded import BIG, CrowdSize, crowd
from tests.dashboard.round_trips import RoundTrips, counted_round_trips, pages_of
from tests.support.cli_desk import Desk

REPEATS = 8
TRIPS, BLOCKING_MS, RENDER_MS = 5, 5.0, 500.0
SMALL = CrowdSize(20_000, 1_000)


@dataclass(slots=True)
class PageCost:
    """What one page took, one entry per repetition (ms)."""

    path: str
    trips: list[int] = field(default_factory=list)
    commands: list[list[float]] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    first: float = 0.0

    @property
    def fits(self) -> bool:
        return max(self.trips) <= TRIPS and self.slowest <= BLOCKING_MS and min(self.whole) <= RENDER_MS

    @property
    def best(self) -> list[float]:
        """The least time of each command. A page sends the same commands each time, unless something happened."""
        alike = [times for times in self.commands if len(times) == len(self.commands[-1])]
        return [min(times) for times in zip(*alike, strict=True)]

    @property
    def slowest(self) -> float:
        return max(self.best, default=0.0)


def measure(web: TestClient, desk: Desk, trips: RoundTrips, path: str) -> PageCost:
    cost = PageCost(path)
    for nth in range(REPEATS + 1):
        desk.command("SLOWLOG", "RESET")
        trips.count, began = 0, time.perf_counter()
        answer = web.get(path)
        took, count = 1000 * (time.perf_counter() - began), trips.count
        if answer.status_code != 200:
            raise SystemExit(f"{path}: {answer.status_code}\n{answer.text}")
        times = [entry[2] / 1000 for entry in desk.command("SLOWLOG", "GET", 10_000)[:-1]]
        if nth == 0:
            cost.first = took
            continue
        cost.trips.append(count)
        cost.whole.append(took)
        cost.commands.append(times)
    return cost


def shown(cost: PageCost) -> PageCost:
    mark = "" if cost.fits else "  MISSED"
    print(
        f"{cost.path[:57]:<58}{max(cost.trips):>6}{cost.slowest:>9.2f}{sum(cost.best):>8.1f}"
        f"{min(cost.whole):>8.0f}{cost.first:>8.0f}{mark}",
        flush=True,
    )
    return cost


def report(costs: list[PageCost]) -> None:
    print(
        f"\nmost round trips {max(max(cost.trips) for cost in costs)} (target {TRIPS}), "
        f"slowest command {max(cost.slowest for cost in costs):.2f} ms (target {BLOCKING_MS:g}), "
        f"slowest page {max(min(cost.whole) for cost in costs):.0f} ms (target {RENDER_MS:g})"
    )


def main() -> None:
    size = SMALL if quick() else BIG
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        settings = Settings(
            redis_url=f"embedded://{folder}/store", namespace="bench", redis_read_timeout=30.0, redis_deadline=60.0
        )
        with SyncStore(settings, load_scripts()) as store:
            desk = Desk(store, settings)
            began = time.perf_counter()
            ids = crowd(desk, size)
            print(f"{size} made in {time.perf_counter() - began:.0f} s, {desk.command('DBSIZE'):,} keys", flush=True)
            desk.command("CONFIG", "SET", "slowlog-log-slower-than", 0)
            desk.command("CONFIG", "SET", "slowlog-max-len", 10_000)
            with (
                counted_round_trips() as trips,
                TestClient(local_app(settings), base_url="http://localhost", follow_redirects=False) as web,
            ):
                web.get("/actions")
                print(f"\n{'page':<58}{'trips':>6}{'slowest':>9}{'store':>8}{'page':>8}{'first':>8}")
                print(f"{'':<58}{'':>6}{'ms':>9}{'ms':>8}{'ms':>8}{'ms':>8}", flush=True)
                costs = [shown(measure(web, desk, trips, path)) for path in pages_of(ids)]
            report(costs)
    sys.exit(0 if all(cost.fits for cost in costs) else 1)


if __name__ == "__main__":
    main()
