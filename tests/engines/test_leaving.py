"""The time that a worker has to shut down, on a clock that the test moves; and the time that the sample systemd unit
allows."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from relier.engines import supervisor
from relier.engines.shutdown import LEAVE_S, MARGIN_S, ShutdownBudget
from relier.settings import Settings

PRODUCTION = Path(__file__).parents[2] / "docs" / "how-to" / "production.md"


class Hands:
    """A clock that moves only when the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_everything_after_the_grace_period_shares_one_budget() -> None:
    clock = Hands()
    budget = ShutdownBudget(30, clock)
    budget.begin()
    clock.now += 10
    budget.begin()  # a second signal does not prolong it
    assert budget.grace_left() == 20
    clock.now += 23
    assert (budget.grace_left(), budget.left()) == (0, LEAVE_S - MARGIN_S - 3)
    assert budget.left(1) == 1
    clock.now += 60
    assert budget.left() == 0


def test_a_worker_without_tasks_skips_the_grace_period() -> None:
    clock = Hands()
    budget = ShutdownBudget(30, clock)
    budget.begin()
    clock.now += 1
    budget.end_grace()
    clock.now += 1
    budget.end_grace()
    assert (budget.grace_left(), budget.left()) == (0, LEAVE_S - MARGIN_S - 1)


@pytest.mark.anyio
async def test_work_that_does_not_end_in_time_is_cancelled() -> None:
    clock = Hands()
    budget = ShutdownBudget(0, clock)
    budget.begin()
    clock.now += LEAVE_S
    never = asyncio.get_running_loop().create_task(asyncio.Event().wait())
    assert not await budget.spend(never)
    assert never.cancelled()
    assert await ShutdownBudget(0, clock).spend(asyncio.sleep(0))


def test_the_samples_allow_more_than_a_worker_takes() -> None:
    text = PRODUCTION.read_text()
    found = re.findall(r"TimeoutStopSec=(\d+)|stop_grace_period: (\d+)s|terminationGracePeriodSeconds: (\d+)", text)
    allowed = [int(next(filter(None, groups))) for groups in found]
    grace = Settings(redis_url="embedded://").graceful_shutdown_timeout
    returns = Settings().heartbeat_ttl / 5  # a supervisor that has killed a child tries to return its tasks
    assert len(allowed) == 3
    assert min(allowed) > grace + max(LEAVE_S, supervisor.LATE_S + returns)
