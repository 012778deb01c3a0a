"""Outcomes of real workers under kill -9: each task is counted once, whoever ran it how often."""

from __future__ import annotations

import random
import signal
from collections import Counter

import pytest

from relier.ledger.outcomes.records import Series
from relier.slo import read_history_sync
from tests.engines.conftest import NewFleet, fleets
from tests.support.fleet import Fleet, wait_until
from tests.support.jobs import common as jobs
from tests.support.jobs import counted

__all__ = ["fleets"]  # a fixture
KILLS = 6
MODULES = ("tests.support.jobs.common", "tests.support.jobs.counted")


def outcomes(fleet: Fleet) -> Counter[tuple[str, str]]:
    """Return what was counted, by what it is and the task's name."""
    found: Counter[tuple[str, str]] = Counter()
    series: Series
    for series, n in read_history_sync(fleet.store.run, fleet.ledger).last(60).items():
        found[series.what, series.name] += n
    return found


@pytest.mark.slow
def test_every_end_is_counted_once_under_kill_9(fleets: NewFleet) -> None:
    fleet, dice = fleets(1), random.Random(20261119)
    member = fleet.worker("--processes", "2", "--concurrency", "10", modules=MODULES)
    naps = [receipt.id for receipt in jobs.nap.push_many([(0.05,)] * 400)]
    lucky = [receipt.id for receipt in counted.second_time_lucky.push_many([()] * 60)]
    failing = [receipt.id for receipt in counted.fails.push_many([()] * 40)]
    for kill in range(1, KILLS + 1):
        fleet.wait_diary("begin", 40 * kill, 60)
        victims = member.children()
        member.signal(signal.SIGKILL, dice.choice(victims))
        wait_until(lambda known={*victims}: {*member.children()} - known, 30, "another process")  # type: ignore[misc]
    fleet.wait_done([*naps, *lucky], 90)
    fleet.wait_ended(failing, 60)
    ran = Counter(line.task_id for line in fleet.diary("begin"))
    assert max(ran.values()) > 1, "some tasks ran again"
    assert {key: n for key, n in outcomes(fleet).items() if key[0] != "wait"} == {
        ("done", jobs.nap.name): 400,
        ("done", counted.second_time_lucky.name): 60,
        ("dead", counted.fails.name): 40,
    }
    claims = sum(fleet.get(task_id).record.attempt for task_id in naps)
    assert outcomes(fleet)["wait", jobs.nap.name] == claims
