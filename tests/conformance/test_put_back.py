"""A task that this worker's code cannot run returns to its queue, where a worker with other code finds it."""

from __future__ import annotations

from typing import Any

import pytest

from relier import TaskState
from relier.failure import read_failure
from relier.options import TaskOptions
from relier.task import RlTask
from tests.support.conformance import more_tasks, tasks
from tests.support.conformance.stage import PATIENCE_S, Receipt, Stage


def wait_until_put_back(stage: Stage, receipt: Receipt, why: str = "UnknownTaskError") -> None:
    """Wait until the task is put back: not lost, no attempt used up, and with a reason."""
    task = stage.wait_for_state(receipt, TaskState.SCHEDULED)
    assert task.record.attempt == 0
    (entry,) = task.history
    assert entry.move == "retry"
    assert read_failure(entry.detail).name == why


@pytest.mark.core
def test_an_unknown_task_is_put_back_and_run_by_a_worker_that_knows_it(stage: Stage) -> None:
    receipt = tasks.ctx_last.push(1)
    stranger = stage.start_worker("tests.support.conformance.more_tasks")
    wait_until_put_back(stage, receipt)
    assert more_tasks.who_am_i.push().result(PATIENCE_S) == "more_tasks"
    stranger.stop()
    assert stranger.exit_code() == stage.engine.clean
    stage.start_worker("tests.support.conformance.tasks")
    assert receipt.result(PATIENCE_S)["attempt"] == 1


def test_a_payload_of_newer_code_is_put_back_and_run_by_newer_code(stage: Stage) -> None:
    newer: RlTask[Any, str] = RlTask(tasks.versioned.fn, TaskOptions(name="versioned", schema_version=2))
    receipt = newer.push("written")
    old = stage.start_worker()
    wait_until_put_back(stage, receipt, "SchemaMigrationError")
    assert tasks.versioned.push("written").result(PATIENCE_S) == "written by version 1"
    old.stop()
    assert old.exit_code() == stage.engine.clean
    stage.start_worker(env={"CONFORMANCE_SCHEMA": "2"})
    assert receipt.result(PATIENCE_S) == "written by version 2"
    assert stage.record(receipt).attempt == 1


def test_a_payload_of_older_code_runs(stage: Stage) -> None:
    stage.start_worker(env={"CONFORMANCE_SCHEMA": "2"})
    assert tasks.versioned.push("written").result(PATIENCE_S) == "written by version 2"
