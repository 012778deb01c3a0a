"""SIGTERM at random moments of a worker's life, under load: no task is lost, and no attempt is used up.

    python -m bench.drain [--quick]

The lease is a minute, so a task that was not handed back properly would be missing. Some moments fall into the start of
the process, some into its first claim, most among running tasks. Half of the workers let tasks finish for a while, half
hand them back at once.
"""

from __future__ import annotations

import random
import signal
import time

from bench.fleets import Table, a_fleet, leave, quick
from relier.states import State
from tests.support.fleet import Fleet
from tests.support.jobs import common as jobs

LEASE_S = 60.0
LONGEST_S = 0.6  # from its first claim to its SIGTERM
EARLY = 0.1  # this share gets the signal earlier, during its start
TASKS = 30  # pushed per worker


def load(dice: random.Random) -> list[str]:
    """Return the tasks to push: coroutines and threads, mostly short, some that will not end in time."""
    naps = [(dice.choice([0.0, 0.01, 0.1, 0.5]),) for _ in range(TASKS)]
    return [receipt.id for receipt in jobs.nap.push_many(naps[::2]) + jobs.nap_thread.push_many(naps[1::2])]


def serve_and_stop(fleet: Fleet, dice: random.Random) -> tuple[int | None, float]:
    """Run one worker from start to exit. Return its exit code and how long its shutdown took (s). There is no exit code
    if Python had not yet installed its signal handlers."""
    patience = dice.choice(["0", "0.3"])
    member = fleet.start(
        "worker", "tests.support.jobs.common", "--concurrency", "20", RELIER_GRACEFUL_SHUTDOWN_TIMEOUT=patience
    )
    if dice.random() < EARLY:
        time.sleep(dice.uniform(0.2, 1))
    else:
        member.wait_said(" started: queues=")
        time.sleep(dice.uniform(0, LONGEST_S))
    told = time.monotonic()
    code = member.terminate(60)
    asleep = code == -signal.SIGTERM and not member.said()
    return None if asleep else code, time.monotonic() - told


def main() -> None:
    moments = 20 if quick() else 200
    dice = random.Random(20261115)
    with a_fleet(LEASE_S) as fleet:
        ids: list[str] = []
        stops: list[tuple[int | None, float]] = []
        for _ in range(moments):
            ids += load(dice)
            stops.append(serve_and_stop(fleet, dice))
        before = fleet.stats()
        fleet.worker()
        tasks = fleet.wait_ended(ids, 120)
        after = fleet.stats()
        codes = [code for code, _ in stops]
        table = Table(f"SIGTERM at {moments} random moments, {len(ids):,} tasks")
        table.line("workers that left clean (0)", codes.count(0))
        table.line("workers that handed tasks back (3)", codes.count(3))
        table.line("workers that had not begun", codes.count(None))
        table.exactly("workers that left otherwise", sum(code not in (0, 3, None) for code in codes), 0)
        table.line("tasks handed back", after.counts.get("released", 0))
        table.line("longest time to leave", max(seconds for _, seconds in stops), "s")
        table.exactly("workers left behind", len(before.workers), 0)
        table.exactly("tasks still held when all had left", before.by_state()[State.RUNNING], 0)
        table.exactly("tasks lost", len(ids) - sum(task.record.state == "done" for task in tasks), 0)
        table.exactly("tasks revived", after.counts.get("revived", 0), 0)
        table.exactly("attempts burnt", sum(task.result != b"1" or bool(task.history) for task in tasks), 0)
    leave(table)


if __name__ == "__main__":
    main()
