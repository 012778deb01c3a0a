"""What a receipt knows, right after the push and from its id alone."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from relier import ResultTimeoutError, SyncTaskReceipt, TaskNotFoundError, TaskReceipt, TaskState
from tests.support.conformance import tasks
from tests.support.conformance.stage import PATIENCE_S, Stage
from tests.support.servers import wait_until


def test_a_receipt_distinguishes_every_state(shared: Stage) -> None:
    shared.needs(at_once=2)
    shared.hold("held")
    queued = tasks.aadd.with_options(queue="held").push(1)
    scheduled = tasks.aadd.with_options(delay=3600).push(1)
    running = tasks.wait.push(shared.place)
    done, dead = tasks.aadd.push(1), tasks.decline.push("stolen", 1)
    shared.wait_for_notes("runs")
    shared.wait_for_end(done)
    shared.wait_for_end(dead)
    receipts: list[Any] = [queued, scheduled, running, done, dead]
    assert [one.state() for one in receipts] == ["queued", "scheduled", "running", "done", "dead"]
    for one in (queued, scheduled):
        one.cancel()
        assert one.state() is TaskState.CANCELLED
    shared.let_go("held")


@pytest.mark.anyio
async def test_an_awaited_receipt_distinguishes_every_state(stage: Stage) -> None:
    queued = await tasks.aadd.apush(1)
    scheduled = await tasks.aadd.with_options(delay=3600).apush(1)
    assert [await queued.state(), await scheduled.state()] == ["queued", "scheduled"]
    await queued.cancel()
    assert await queued.state() == "cancelled"
    assert await TaskReceipt[Any]("nobody").state() == "not-found"


def test_a_receipt_of_an_unknown_task_raises(stage: Stage) -> None:
    receipt = SyncTaskReceipt[Any]("nobody")
    assert receipt.state() is TaskState.NOT_FOUND
    for ask in (receipt.result, receipt.cancel, receipt.info):
        with pytest.raises(TaskNotFoundError, match="nobody"):
            ask()


@pytest.mark.anyio
async def test_a_result_can_be_awaited_before_its_task_is_in_the_ledger(shared: Stage) -> None:
    """As for a task that is still in an outbox."""
    task_id = f"{shared.settings.namespace}-comes-later"
    result = asyncio.create_task(tasks.aadd.receipt(task_id).result(timeout=PATIENCE_S))
    blocking = asyncio.create_task(asyncio.to_thread(tasks.aadd.sync_receipt(task_id).result, PATIENCE_S))
    await tasks.aadd.receipt(task_id).state()  # both have polled
    await tasks.aadd.with_options(task_id=task_id).apush(2, 3)
    assert (await result, await blocking) == (5, 5)


@pytest.mark.anyio
async def test_a_task_that_does_not_arrive_in_time_is_not_found(stage: Stage) -> None:
    with pytest.raises(TaskNotFoundError, match="nobody"):
        SyncTaskReceipt[Any]("nobody").result(timeout=1.0)
    with pytest.raises(TaskNotFoundError, match="nobody"):
        await TaskReceipt[Any]("nobody").result(timeout=1.0)


def test_a_task_past_its_retention_is_reported_as_expired(shared: Stage) -> None:
    receipt = tasks.forgotten.push()

    def gone() -> bool:
        shared.run(shared.ledger.reap())
        return receipt.state() is TaskState.EXPIRED

    wait_until(gone, PATIENCE_S, "the record is removed")
    with pytest.raises(TaskNotFoundError):
        receipt.result()
    assert (
        tasks.forgotten.sync_receipt(receipt.id).state() is TaskState.NOT_FOUND
    )  # only the pusher knows that it existed


def test_receipts_are_rebuilt_from_ids(shared: Stage) -> None:
    pushed = tasks.wait.push(shared.place)
    rebuilt = tasks.wait.sync_receipt(pushed.id)
    assert rebuilt == pushed
    assert len({rebuilt, pushed}) == 1
    shared.wait_for_notes("runs")
    assert rebuilt.state() is TaskState.RUNNING
    shared.go()
    assert rebuilt.result(PATIENCE_S) == "attempt 1"
    assert SyncTaskReceipt[Any](pushed.id).result() == "attempt 1"
    assert rebuilt.info().record.attempt == 1


@pytest.mark.anyio
async def test_awaited_receipts_are_rebuilt_from_ids(shared: Stage) -> None:
    pushed = await tasks.wait.apush(shared.place)
    rebuilt = tasks.wait.receipt(pushed.id)
    shared.wait_for_notes("runs")
    assert await rebuilt.cancel() is True
    shared.wait_for_state(pushed, TaskState.CANCELLED)
    assert await tasks.aadd.receipt((await tasks.aadd.apush(4)).id).result(timeout=PATIENCE_S) == 4


def test_a_result_that_does_not_come_in_time_leaves_the_task_alone(shared: Stage) -> None:
    receipt = tasks.wait.push(shared.place)
    shared.wait_for_notes("runs")
    begun = time.monotonic()
    with pytest.raises(ResultTimeoutError, match="still running"):
        receipt.result(timeout=1.0)
    assert 1.0 <= time.monotonic() - begun < 5
    with pytest.raises(TimeoutError):
        receipt.result(timeout=0)
    shared.go()
    assert receipt.result(PATIENCE_S) == "attempt 1"


@pytest.mark.anyio
async def test_an_awaited_result_that_does_not_come_in_time_leaves_the_task_alone(shared: Stage) -> None:
    receipt = await tasks.wait.apush(shared.place)
    with pytest.raises(ResultTimeoutError):
        await receipt.result(timeout=1.0)
    shared.go()
    assert await receipt.result(timeout=PATIENCE_S) == "attempt 1"
