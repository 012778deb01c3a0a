"""A worker that is told to stop finishes what it can, hands back the rest, and uses up no attempt."""

from __future__ import annotations

import pytest

from relier import TaskState
from tests.support.conformance import tasks
from tests.support.conformance.stage import PATIENCE_S, Stage


@pytest.mark.core
def test_a_worker_told_to_stop_lets_running_tasks_finish_and_exits_cleanly(stage: Stage) -> None:
    stage.needs(at_once=len(tasks.WAITS))
    worker = stage.start_worker()
    receipts = [task.push(stage.place) for task in tasks.WAITS.values()]
    stage.wait_for_notes("runs", len(receipts))
    worker.stop()
    later = tasks.wait.push(stage.place)
    stage.go()
    assert worker.exit_code() == stage.engine.clean
    assert [stage.record(one).state.value for one in receipts] == ["done"] * len(receipts)
    assert later.state() is TaskState.QUEUED  # it claimed nothing new
    assert stage.boots() == set()
    assert stage.notes("stopped") == []


def test_a_second_sigterm_is_ignored(stage: Stage) -> None:
    worker = stage.start_worker()
    receipt = tasks.wait.push(stage.place)
    stage.wait_for_notes("runs")
    worker.stop()
    worker.stop()
    stage.wait_for_beats(1)
    assert worker.running
    stage.go()
    assert worker.exit_code() == stage.engine.clean
    assert receipt.result() == "attempt 1"


def test_an_idle_worker_told_to_stop_leaves_at_once(stage: Stage) -> None:
    worker = stage.start_worker()
    worker.stop()
    assert worker.exit_code() == stage.engine.clean
    assert stage.boots() == set()


@pytest.mark.core
def test_a_task_that_does_not_finish_in_time_is_handed_back_and_runs_elsewhere(stage: Stage) -> None:
    """This uses up no attempt, wherever the task ran."""
    stage.needs(at_once=len(tasks.WAITS))
    worker = stage.start_worker(graceful_shutdown_timeout=0.1)
    receipts = [task.push(stage.place) for task in tasks.WAITS.values()]
    stage.wait_for_notes("runs", len(receipts))
    worker.stop()
    assert worker.exit_code() == stage.engine.forced
    for receipt in receipts:
        record = stage.record(receipt)
        assert (record.state.value, record.attempt) == ("queued", 0)
    assert stage.boots() == set()
    assert len(stage.notes("stopped")) == len(receipts)
    stage.go()
    stage.start_worker()
    assert [receipt.result(PATIENCE_S) for receipt in receipts] == ["attempt 1"] * len(receipts)


@pytest.mark.core
def test_a_task_that_cannot_be_stopped_does_not_hold_up_the_exit(stage: Stage) -> None:
    worker = stage.start_worker(graceful_shutdown_timeout=0)
    receipt = tasks.sleep_in_c.push(stage.place)
    stage.wait_for_notes("runs")
    worker.stop()
    assert worker.exit_code() == stage.engine.forced
    record = stage.record(receipt)
    assert (record.state.value, record.attempt) == ("queued", 0)


@pytest.mark.parametrize("kind", ["shared process", "isolated"])
def test_the_soft_timeout_hook_is_called_before_a_task_is_handed_back(stage: Stage, kind: str) -> None:
    task = tasks.warned_at_drain if kind == "shared process" else tasks.warned_at_drain_alone
    worker = stage.start_worker(graceful_shutdown_timeout=0)
    receipt = task.push(stage.place)
    stage.wait_for_notes("runs")
    worker.stop()
    assert worker.exit_code() == stage.engine.forced
    assert stage.notes("soft") == [f"{receipt.id} 1 {receipt.id}"]
    assert stage.record(receipt).attempt == 0


def test_a_hook_that_was_called_is_not_called_again_at_a_drain(stage: Stage) -> None:
    worker = stage.start_worker(graceful_shutdown_timeout=0)
    tasks.slow.push(stage.place)
    stage.wait_for_notes("soft")
    worker.stop()
    assert worker.exit_code() == stage.engine.forced
    assert len(stage.notes("soft")) == 1


@pytest.mark.core
def test_a_second_interrupt_ends_the_worker_at_once_and_still_hands_back(stage: Stage) -> None:
    stage.needs(at_once=2)
    worker = stage.start_worker(graceful_shutdown_timeout=3600)
    receipts = [tasks.wait.push(stage.place), tasks.wait_def.push(stage.place)]
    stage.wait_for_notes("runs", 2)
    worker.interrupt()
    stage.wait_for_beats(1)
    assert worker.running
    worker.interrupt()
    assert worker.exit_code() == stage.engine.forced
    for receipt in receipts:
        record = stage.record(receipt)
        assert (record.state.value, record.attempt) == ("queued", 0)
    assert stage.count("revived") == 0


def test_one_interrupt_drains_as_sigterm_does(stage: Stage) -> None:
    worker = stage.start_worker()
    receipt = tasks.wait.push(stage.place)
    stage.wait_for_notes("runs")
    worker.interrupt()
    stage.go()
    assert worker.exit_code() == stage.engine.interrupted
    assert receipt.result() == "attempt 1"


def test_a_task_that_is_cancelled_during_a_drain_ends_there(stage: Stage) -> None:
    worker = stage.start_worker(graceful_shutdown_timeout=3600)
    receipt = tasks.wait.push(stage.place)
    stage.wait_for_notes("runs")
    worker.stop()
    receipt.cancel()
    assert worker.exit_code() == stage.engine.clean
    assert receipt.state() is TaskState.CANCELLED
