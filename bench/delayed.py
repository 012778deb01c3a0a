"""A million delayed tasks: none of them is in a worker's memory, and those that come due start in time.

    python -m bench.delayed [--quick]

Nearly all are due in an hour. Some come due during the run, evenly spread. Their lateness is the time from when they
were due to their first line.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from bench.fleets import Table, a_fleet, leave, quantile, quick
from tests.support.fleet import Fleet, Member
from tests.support.jobs import common as jobs

LEASE_S = 5.0
WATCHED_S = 30
PER_SECOND = 100
FLAT_MB = 5.0
BLOCK = 10_000


def resident_mb(member: Member) -> float:
    pages = int(Path(f"/proc/{member.pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def store_mb(fleet: Fleet) -> float:
    told: str = fleet.store.command("INFO", "memory").decode()
    return int(told.split("used_memory:")[1].split()[0]) / 1e6


def push_far(count: int) -> float:
    """Push tasks that are due in an hour. Return how many were accepted per second."""
    begun = time.monotonic()
    for _ in range(count // BLOCK):
        jobs.due.with_options(delay=3600).push_many([(0,)] * BLOCK)
    return count / (time.monotonic() - begun)


def push_soon() -> int:
    """Push the tasks that come due during the run. Return how many there are."""
    begin = time.time() * 1000 + 10_000
    etas = [round(begin + 1000 * number / PER_SECOND) for number in range(WATCHED_S * PER_SECOND)]
    for eta in etas:
        jobs.due.with_options(eta=datetime.fromtimestamp(eta / 1000, UTC)).push(eta)
    if time.time() * 1000 > begin:
        raise SystemExit("the pushes took so long that the first ones were due before the last were made")
    return len(etas)


def lateness(fleet: Fleet, wanted: int) -> list[float]:
    """Return the lateness of each task that came due (s), once all have started, or a minute after they should have."""
    file = fleet.folder / "lateness"
    until = time.monotonic() + WATCHED_S + 70
    while True:
        late = [float(line) / 1000 for line in file.read_text().splitlines()] if file.exists() else []
        if len(late) >= wanted or time.monotonic() > until:
            return late
        time.sleep(0.2)


def main() -> None:
    count = 50_000 if quick() else 1_000_000
    with a_fleet(LEASE_S) as fleet:
        member = fleet.worker()
        # the in-memory buffer has its final size
        fleet.wait_done([receipt.id for receipt in jobs.quick.push_many([()] * 2_000)], 60)
        before = resident_mb(member)
        rate = push_far(count)
        full = resident_mb(member)
        watched = push_soon()
        late = lateness(fleet, watched)
        after = resident_mb(member)
        table = Table(f"{count:,} delayed tasks, and {watched:,} more that come due while we watch")
        table.line("accepted per second, by push_many", round(rate))
        table.line("the store's memory", store_mb(fleet), "MB")
        table.line("the worker's memory before", before, "MB")
        table.most("its growth with all of them delayed", full - before, FLAT_MB, "MB")
        table.most("its growth after those that came due", after - before, FLAT_MB, "MB")
        table.exactly("tasks still scheduled", fleet.stats().scheduled, count)
        table.exactly("due tasks that started", len(late), watched)
        table.line("late: p50", quantile(late, 0.5), "s")
        table.line("late: p99", quantile(late, 0.99), "s")
        table.most("late: the latest", max(late), 1.0, "s")
        table.exactly("tasks that started before their time", sum(seconds < -0.001 for seconds in late), 0)
    leave(table)


if __name__ == "__main__":
    main()
