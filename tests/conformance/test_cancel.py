"""Cancelling a task, in whatever state it is."""

from __future__ import annotations

import pytest

from relier import TaskCancelledError, TaskState
from tests.support.conformance import tasks
from tests.support.conformance.stage import PATIENCE_S, Stage


def test_a_queued_task_that_is_cancelled_never_runs(shared: Stage) -> None:
    shared.hold("held")
    receipt = tasks.wait.with_options(queue="held").push(shared.place)
    assert receipt.cancel() is True
    shared.let_go("held")
    assert receipt.state() is TaskState.CANCELLED
    with pytest.raises(TaskCancelledError):
        receipt.result()
    after = tasks.aadd.with_options(queue="held").push(1)
    assert after.result(PATIENCE_S) == 1
    assert shared.notes("runs") == []


def test_a_scheduled_task_that_is_cancelled_never_runs(shared: Stage) -> None:
    receipt = tasks.wait.with_options(delay=3600).push(shared.place)
    assert receipt.state() is TaskState.SCHEDULED
    assert receipt.cancel() is True
    assert receipt.state() is TaskState.CANCELLED
    assert shared.command("ZSCORE", shared.key("due"), receipt.id) is None


@pytest.mark.core
@pytest.mark.parametrize("kind", tasks.WAITS)
def test_a_running_task_that_is_cancelled_is_stopped(shared: Stage, kind: str) -> None:
    receipt = tasks.WAITS[kind].push(shared.place)
    shared.wait_for_notes("runs")
    assert receipt.cancel() is True
    assert shared.wait_for_notes("stopped") == ["1"]
    ended = shared.wait_for_end(receipt)
    assert (ended.record.state.value, ended.record.reason) == ("cancelled", "cancelled")
    with pytest.raises(TaskCancelledError):
        receipt.result()
    assert len(shared.notes("runs")) == 1


def test_a_task_waiting_for_an_isolated_process_can_be_cancelled(shared: Stage) -> None:
    """The task is claimed, but waits for a free process. Its cancellation must not wait for that."""
    processes = shared.engine.alone
    before = tasks.wait_alone.push_many([(shared.place,)] * processes)
    shared.wait_for_notes("runs", processes)
    in_line = tasks.wait_alone.push(shared.place)
    if shared.engine.holds_a_line:
        shared.wait_for_state(in_line, TaskState.RUNNING)
    in_line.cancel()
    shared.wait_for_state(in_line, TaskState.CANCELLED, seconds=10)
    shared.go()
    assert {receipt.result(PATIENCE_S) for receipt in before} == {"attempt 1"}
    assert len(shared.notes("runs")) == processes


@pytest.mark.anyio
async def test_an_awaited_receipt_cancels_in_the_same_way(shared: Stage) -> None:
    receipt = await tasks.wait.apush(shared.place)
    shared.wait_for_notes("runs")
    assert await receipt.cancel() is True
    with pytest.raises(TaskCancelledError):
        await receipt.result(timeout=PATIENCE_S)
    assert await receipt.state() is TaskState.CANCELLED


def test_a_task_that_finishes_despite_a_cancel_is_done(shared: Stage) -> None:
    """A cancellation is a request. If the task returns a result first, the result counts."""
    receipt = tasks.finishes_when_stopped.push(shared.place)
    shared.wait_for_notes("runs")
    receipt.cancel()
    assert receipt.result(PATIENCE_S) == "finished all the same"


@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_cancelled_task_is_interrupted_once_and_may_take_time_to_clean_up(shared: Stage, kind: str) -> None:
    task = tasks.cleans_up_when_stopped if kind == "async" else tasks.cleans_up_when_stopped_def
    receipt = task.push(shared.place)
    shared.wait_for_notes("runs")
    receipt.cancel()
    shared.wait_for_notes("stopped")
    shared.wait_for_beats(3)
    shared.go("cleaned")
    assert shared.wait_for_end(receipt).record.state.value == "cancelled"
    assert shared.notes("stopped") == ["1"]


def test_a_failure_after_a_cancel_is_not_tried_again(shared: Stage) -> None:
    receipt = tasks.fails_then_waits.push(shared.place)
    shared.wait_for_notes("runs", 2)
    receipt.cancel()
    assert shared.wait_for_end(receipt).record.state.value == "cancelled"
    assert len(shared.notes("runs")) == 2


def test_cancelling_again_changes_nothing(shared: Stage) -> None:
    receipt = tasks.wait.push(shared.place)
    shared.wait_for_notes("runs")
    assert [receipt.cancel(), receipt.cancel()] == [True, True]
    shared.wait_for_state(receipt, TaskState.CANCELLED)
    assert receipt.cancel() is True


def test_a_task_that_has_ended_cannot_be_cancelled(shared: Stage) -> None:
    done, dead = tasks.aadd.push(1), tasks.decline.push("stolen", 1)
    assert done.result(PATIENCE_S) == 1
    shared.wait_for_death(dead)
    assert [done.cancel(), dead.cancel()] == [False, False]
    assert [done.state(), dead.state()] == [TaskState.DONE, TaskState.DEAD]


def test_a_cancel_applies_only_to_the_attempt_that_was_running(shared: Stage) -> None:
    """A late request that was meant for an earlier attempt does not cancel the current one."""
    receipt = tasks.fails_then_waits.push(shared.place)
    first, _ = shared.wait_for_notes("runs", 2)
    record = shared.record(receipt)
    asked = shared.key("asked", record.worker_id)
    shared.command("SADD", asked, f"{receipt.id} {first.split()[1]}")
    try:
        shared.wait_for_beats(2)
    finally:
        shared.command("DEL", asked)
    assert receipt.state() is TaskState.RUNNING
    shared.go()
    assert receipt.result(PATIENCE_S) == "went"


def test_a_task_that_was_asked_to_end_and_died_of_something_else_can_be_replayed(shared: Stage) -> None:
    """The request to cancel ended with the attempt."""
    receipt = tasks.answers_nonsense_when_stopped.push(shared.place)
    shared.wait_for_notes("runs")
    receipt.cancel()
    assert shared.wait_for_death(receipt).record.reason == "PayloadEncodingError"
    shared.go()
    receipt.replay()
    assert receipt.result(PATIENCE_S) == "attempt 1"


@pytest.mark.core
def test_a_worker_continues_after_many_cancels(shared: Stage) -> None:
    count = min(10, shared.engine.at_once)
    receipts = tasks.wait_def.push_many([(shared.place,)] * count)
    shared.wait_for_notes("runs", count)
    assert all(receipt.cancel() for receipt in receipts)
    for receipt in receipts:
        shared.wait_for_state(receipt, TaskState.CANCELLED)
    assert [one.result(PATIENCE_S) for one in tasks.add.push_many([(n,) for n in range(20)])] == [*range(20)]
