"""Limits at run time in tests: inline tasks ignore them, run_pending honours them in virtual time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from relier import Limit, rl_task
from relier.testing import VirtualStore, inline, run_pending

ran: list[Any] = []
MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@rl_task(name="rl.call", limits=[Limit(rate="1/min")])
async def call(number: int) -> None:
    ran.append(number)


@rl_task(name="rl.build", limits=[Limit(concurrency=2, per="tenant:{tenant}")])
async def build(tenant: int) -> None:
    ran.append(("begins", tenant))
    await asyncio.sleep(60)
    ran.append(("ends", tenant))


def test_run_pending_waits_for_a_rate_in_virtual_time(relier_store: VirtualStore) -> None:
    for number in range(4):
        call.push(number)
    assert [attempt.at.total_seconds() for attempt in run_pending()] == pytest.approx([0, 60, 120, 180], abs=0.01)
    assert ran == [0, 1, 2, 3]


def test_run_pending_runs_no_more_at_once_than_a_limit_allows(relier_store: VirtualStore) -> None:
    build.push_many([(1,)] * 5)
    build.push(2)
    run_pending()
    running = {1: 0, 2: 0}
    for what, tenant in ran:
        running[tenant] += 1 if what == "begins" else -1
        assert running[tenant] <= 2
    assert len(ran) == 12
    assert ran.index(("begins", 2)) < 5, "the other tenant did not wait"


def test_tasks_that_have_not_started_within_the_time_keep_waiting(relier_store: VirtualStore) -> None:
    for number in range(3):
        call.push(number)
    assert len(run_pending(within=1.5 * MINUTE)) == 2
    assert len(run_pending()) == 1


def test_inline_tasks_ignore_limits() -> None:
    with inline():
        for number in range(3):
            call.push(number)
    assert ran == [0, 1, 2]
