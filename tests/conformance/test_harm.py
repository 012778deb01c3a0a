"""Tasks whose code harms other tasks or their worker: both continue. And steps in branches, whose order is not
fixed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.conformance import tasks
from tests.support.conformance.stage import PATIENCE_S, Stage


@pytest.mark.core
def test_a_task_that_cancels_all_asyncio_tasks_harms_no_other_task_and_no_worker(stage: Stage) -> None:
    stage.needs(at_once=4)
    worker = stage.start_worker()
    kinds: list[Any] = [tasks.WAITS["async"], tasks.WAITS["def"], tasks.wait_in_branches]
    receipts = [task.push(stage.place) for task in kinds]
    stage.wait_for_notes("runs", 3)
    tasks.cancel_everybody.push(stage.place).result(PATIENCE_S)
    assert len(stage.notes("cancelled")) == 1
    stage.go()
    assert [receipt.result(PATIENCE_S) for receipt in receipts] == ["attempt 1"] * 3
    assert tasks.echo.push("next").result(PATIENCE_S) == "next"
    worker.stop()
    assert worker.exit_code() == stage.engine.clean


@pytest.mark.core
@pytest.mark.parametrize("job", [tasks.fork_on_the_loop, tasks.fork_in_a_thread], ids=["async", "def"])
def test_a_task_that_forks_and_returns_in_both_processes(stage: Stage, job: Any) -> None:
    """The forked copy ends. The process that it was forked from reports the outcome."""
    worker = stage.start_worker()
    assert [job.push(stage.place).result(PATIENCE_S) for _ in range(3)] == [True] * 3
    assert len(stage.notes("forked")) == 6
    assert [tasks.echo.push(n).result(PATIENCE_S) for n in range(10)] == list(range(10))
    worker.stop()
    assert worker.exit_code() == stage.engine.clean


def test_a_task_that_changes_the_folder_harms_nobody(stage: Stage) -> None:
    """Isolated processes start in the folder in which the worker was started."""
    stage.start_worker()
    receipts = [tasks.change_folder.push(stage.place) for _ in range(5)]
    assert [receipt.result(PATIENCE_S) for receipt in receipts] == [stage.place] * 5
    assert tasks.add_alone.push(2, 3).result(PATIENCE_S) == 5


@pytest.mark.core
def test_steps_of_branches_may_begin_in_another_order(stage: Stage) -> None:
    stage.start_worker()
    found = tasks.steps_in_branches.push(stage.place).result(PATIENCE_S)
    assert found == ["<a><a again>", "<b><b again>"]
    assert sorted(stage.notes("effects")) == ["a", "a again", "b", "b again"]
