"""Values and calls that other task systems lose or let pass. Each test is named after one of them and says what other
systems do. Relier must keep the value, or refuse the call."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from relier import AdmissionRejectedError, RlTask, SchemaMigrationError, Settings, rl_task
from relier.ledger.records import Submission, new_task_id
from relier.options import TaskOptions
from relier.states import State
from tests.support.crew import QUICK, Crew, until
from tests.support.jobs import shop, store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def crew(settings: Settings) -> AsyncIterator[Crew]:
    one = Crew(settings.replace(**QUICK))
    yield one
    await one.aclose()


@rl_task(name="facts.flaky", idempotent=True)
async def flaky(key: str) -> str:
    raise ValueError(f"no {key} today")


@rl_task(name="facts.count")
async def count(n: int) -> int:
    return n


async def test_same_function_name_in_two_modules_idempotent(crew: Crew) -> None:
    """Public relier: the second returns the first's result."""
    async with crew.working():
        receipts = [await shop.where.apush(5), await store.where.apush(5)]
        assert [await receipt.result(20) for receipt in receipts] == ["shop 5", "store 5"]
    assert crew.count("done") == 2


async def test_idempotent_task_fails_same_args_pushed_again(crew: Crew) -> None:
    """Public relier: the lock is not released, the second push fails after 76 s without a run. Here it runs at once."""
    async with crew.working():
        began = time.monotonic()
        ids = []
        for _ in range(3):
            receipt = await flaky.apush("bread")
            assert not receipt.duplicate
            with pytest.raises(ValueError, match="no bread today"):
                await receipt.result(20)
            ids.append(receipt.id)
        assert time.monotonic() - began < 20
    assert len(set(ids)) == 3
    assert [crew.get(task_id).record.attempt for task_id in ids] == [1, 1, 1]


async def test_migration_raises(crew: Crew) -> None:
    """Celery: dropped with a log line; public relier: FAILURE, not dead-lettered."""

    @rl_task(name="facts.moved", schema_version=2)
    async def moved(cents: int) -> int:
        return cents

    @moved.migration(from_version=1)
    def in_cents(payload: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("euros")

    old: RlTask[Any, Any] = RlTask(moved.fn, TaskOptions(name="facts.moved", schema_version=1))
    receipt = await old.apush(5)
    payload = crew.get(receipt.id).payload
    async with crew.working():
        with pytest.raises(SchemaMigrationError, match="the migration from version 1 raised KeyError: 'euros'"):
            await receipt.result(20)
    dead = crew.get(receipt.id)
    assert (dead.record.state, dead.record.reason) == (State.DEAD, "SchemaMigrationError")
    assert dead.payload == payload, "as it was pushed: it can be replayed once the migration is mended"


async def test_unknown_task_name(crew: Crew) -> None:
    """Celery: dropped with a log line; public relier: FAILURE, not dead-lettered. Here the task waits for a worker that
    knows it, and uses up no attempt; after ten minutes it becomes a dead letter."""
    task_id = new_task_id()
    crew.run(crew.ledger.submit([Submission(id=task_id, name="facts.nowhere", payload=b"{}")]))
    async with crew.working():
        await until(lambda: crew.get(task_id).record.state is State.SCHEDULED, what="a put back")
        back = crew.get(task_id)
        assert (back.record.attempt, back.payload) == (0, b"{}")
        crew.command("HSET", f"{crew.ledger.prefix}m:{task_id}", "since", crew.stats().now_ms - 600_000)
        await until(lambda: crew.get(task_id).record.state is State.DEAD, what="a dead letter")
    assert crew.get(task_id).record.reason == "UnknownTaskError"


async def test_500_concurrent_pushes_admission_limit_100(crew: Crew) -> None:
    """Public relier: 500 admitted, because its pool was exhausted and it failed open."""
    window = 600.0
    crew.with_settings(admission_limit=100, admission_window=window, redis_pool_size=5)
    began = store_time(crew)
    by_threads: list[str] = []

    def push() -> None:
        for n in range(25):
            try:
                by_threads.append(count.push(n).id)
            except AdmissionRejectedError:
                continue

    threads = [threading.Thread(target=push) for _ in range(10)]
    for thread in threads:
        thread.start()
    answers = await asyncio.gather(*(count.apush(n) for n in range(250)), return_exceptions=True)
    for thread in threads:
        await asyncio.to_thread(thread.join)
    refilled = int((store_time(crew) - began) / window * 100)
    others = [answer for answer in answers if isinstance(answer, BaseException)]
    assert {type(answer) for answer in others} == {AdmissionRejectedError}
    admitted = len(by_threads) + len(answers) - len(others)
    assert 100 <= admitted <= 100 + refilled
    assert crew.count("submitted") == admitted


async def test_199_in_0_35_s_across_a_window_edge(crew: Crew) -> None:
    """Public relier counts per window: the end of one window and the beginning of the next admit twice the limit. Here
    there are no windows: from any moment on, the limit and whatever was refilled since are admitted."""
    crew.with_settings(admission_limit=100, admission_window=1.0)
    await until(lambda: store_time(crew) % 1.0 > 0.8)  # just before a second is over
    began, came = store_time(crew), 0
    while store_time(crew) - began < 0.35:
        answers = await asyncio.gather(*(count.apush(n) for n in range(20)), return_exceptions=True)
        came += sum(not isinstance(answer, BaseException) for answer in answers)
    took = store_time(crew) - began
    assert 100 <= came <= 100 + 100 * took + 1


def store_time(crew: Crew) -> float:
    seconds, micros = crew.command("TIME")
    return int(seconds) + int(micros) / 1e6


async def test_checksum_failure_of_a_dict_with_int_keys(crew: Crew) -> None:
    """Public relier: {2: …, 10: …} sorts differently once its keys are text, and fails its own checksum."""

    @rl_task(name="facts.by_number", idempotent=True)
    async def by_number(table: dict[int, str]) -> dict[int, str]:
        return table

    table = {2: "b", 10: "j", 1: "a"}
    async with crew.working():
        receipt = await by_number.apush(table)
        assert await receipt.result(20) == table
        assert (await by_number.apush(dict(sorted(table.items())))).id == receipt.id
        found = await receipt.result(1)
        assert [type(key) for key in found] == [int, int, int]
