"""What each page of the dashboard costs with 1,000,000 tasks in 5,000 queues: round trips, store time, time to render.

    python -m bench.dashboard [--quick]

The store's times are CPU times of its main thread, which other load on the machine does not change much: every command
that a page sent is sent again several times, alone. `slowest` is the slowest command of a page: so long it blocks the
store. `store` is all of them together. `render` is the CPU time of the dashboard's process for one page. A page takes
about as long as both together, and its round trips. `clock` is what the clock said, at best.
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

REPEATS = 5
SENT_AGAIN = 10
TRIPS, BLOCKING_MS, PAGE_MS = 5, 5.0, 500.0
SMALL = CrowdSize(20_000, 1_000)


@dataclass(slots=True)
class PageCost:
    """What one page took. Lists have one entry per repetition; times are in ms."""

    path: str
    trips: list[int] = field(default_factory=list)
    render: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    commands: list[float] = field(default_factory=list)

    @property
    def slowest(self) -> float:
        return max(self.commands, default=0.0)

    @property
    def page(self) -> float:
        return min(self.render) + sum(self.commands)

    @property
    def fits(self) -> bool:
        return max(self.trips) <= TRIPS and self.slowest <= BLOCKING_MS and self.page <= PAGE_MS


def cpu_ms(store: SyncStore) -> float:
    """Return the CPU time of the store's main thread so far (ms)."""
    lines = store.command("INFO", "cpu").decode().splitlines()
    info = dict(line.split(":", 1) for line in lines if ":" in line)
    return 1000 * sum(float(info[f"used_cpu_{kind}_main_thread"]) for kind in ("user", "sys"))


def measure(web: TestClient, store: SyncStore, trips: RoundTrips, path: str) -> PageCost:
    cost = PageCost(path)
    web.get(path)
    for _ in range(REPEATS):
        trips.reset()
        began, cpu = time.perf_counter(), time.process_time()
        answer = web.get(path)
        cost.render.append(1000 * (time.process_time() - cpu))
        cost.clock.append(1000 * (time.perf_counter() - began))
        cost.trips.append(trips.count)
        if answer.status_code != 200:
            raise SystemExit(f"{path}: {answer.status_code}\n{answer.text}")
    for command in trips.commands():
        before = cpu_ms(store)
        for _ in range(SENT_AGAIN):
            store.command(*command)
        cost.commands.append((cpu_ms(store) - before) / SENT_AGAIN)
    return cost


def shown(cost: PageCost) -> PageCost:
    print(
        f"{cost.path[:57]:<58}{max(cost.trips):>6}{cost.slowest:>9.2f}{sum(cost.commands):>8.1f}{min(cost.render):>8.0f}"
        f"{min(cost.clock):>8.0f}{'' if cost.fits else '  MISSED'}",
        flush=True,
    )
    return cost


def report(costs: list[PageCost]) -> None:
    print(
        f"\nmost round trips {max(max(cost.trips) for cost in costs)} (target {TRIPS}), "
        f"slowest command {max(cost.slowest for cost in costs):.2f} ms (target {BLOCKING_MS:g}), "
        f"slowest page {max(cost.page for cost in costs):.0f} ms (target {PAGE_MS:g})"
    )


def measure_all(settings: Settings, store: SyncStore, ids: dict[str, str]) -> list[PageCost]:
    print(f"\n{'page':<58}{'trips':>6}{'slowest':>9}{'store':>8}{'render':>8}{'clock':>8}")
    print(f"{'':<58}{'':>6}{'ms':>9}{'ms':>8}{'ms':>8}{'ms':>8}", flush=True)
    with (
        counted_round_trips() as trips,
        TestClient(local_app(settings), base_url="http://localhost", follow_redirects=False) as web,
    ):
        web.get("/actions")
        return [shown(measure(web, store, trips, path)) for path in pages_of(ids)]


def main() -> None:
    size = SMALL if quick() else BIG
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        patient = {"redis_read_timeout": 30.0, "redis_deadline": 60.0}
        settings = Settings(redis_url=f"embedded://{folder}/store", namespace="bench", **patient)
        with SyncStore(settings, load_scripts()) as store:
            began = time.perf_counter()
            ids = crowd(Desk(store, settings), size)
            keys = store.command("DBSIZE")
            print(f"{size} made in {time.perf_counter() - began:.0f} s, {keys:,} keys", flush=True)
            costs = measure_all(settings, store, ids)
            report(costs)
    sys.exit(0 if all(cost.fits for cost in costs) else 1)


if __name__ == "__main__":
    main()
