"""Events of tasks: log lines, hooks, and the task's fields on every line that it logs itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relier import TaskState
from tests.support.conformance import event_tasks as tasks
from tests.support.conformance.engine import Worker
from tests.support.conformance.stage import PATIENCE_S, Stage
from tests.support.servers import wait_until

MODULE = "tests.support.conformance.event_tasks"
SHORT = 1.0  # the lease of a worker that is to be lost


def start(stage: Stage, **settings: Any) -> Worker:
    return stage.start_worker(MODULE, env={"EVENTS_FOLDER": stage.place}, **settings)


def events(stage: Stage, name: str, count: int) -> list[dict[str, Any]]:
    """Return the lines that the hooks noted, once there are `count`."""
    return [json.loads(line) for line in stage.wait_for_notes(name, count)]


def lines(worker: Worker, text: str, count: int = 1) -> list[str]:
    """Return the lines of the worker's log that contain the text, once there are `count`."""

    def found() -> list[str]:
        return [line for line in worker.log.read_text(errors="replace").splitlines() if text in line]

    wait_until(lambda: len(found()) >= count, PATIENCE_S, f"{count} × {text!r} in the log")
    return found()


@pytest.mark.core
def test_a_task_logs_with_its_fields_and_its_start_and_success_are_events(stage: Stage) -> None:
    worker = start(stage)
    (worker_id,) = stage.boots()
    receipts = {name: task.push() for name, task in tasks.LOGS.items()}
    for receipt in receipts.values():
        receipt.result(PATIENCE_S)
    records = {record["task_id"]: record for record in map(json.loads, stage.wait_for_notes("records", 3))}
    own = events(stage, "own", 6)
    everything = events(stage, "all", 6)
    for name, receipt in receipts.items():
        record, full_name = records[receipt.id], f"{MODULE}.log_{name}"
        assert record["message"] == "from the body"
        assert (record["task_name"], record["attempt"], record["worker_id"]) == (full_name, 1, worker_id)
        assert record["queue"] == ("as the caller says" if name == "isolated" else "default"), "`extra` may use a name"
        for heard in (own, everything):
            started, succeeded = sorted(
                (event for event in heard if event["task_id"] == receipt.id), key=lambda event: str(event["kind"])
            )
            assert (started["kind"], succeeded["kind"]) == ("started", "succeeded")
            assert (started["run_s"], succeeded["task_name"], succeeded["queue"]) == (None, full_name, "default")
            assert succeeded["run_s"] >= 0
        about = f"name={full_name} id={receipt.id} attempt=1 queue=default"
        assert len(lines(worker, f"task started: {about}")) == 1
        assert len(lines(worker, f"task succeeded: {about} took=")) == 1


@pytest.mark.core
def test_a_failure_is_a_retry_and_then_a_death(stage: Stage) -> None:
    worker = start(stage)
    receipt = tasks.fail.push()
    stage.wait_for_death(receipt)
    own = events(stage, "own", 2)
    assert [(event["kind"], event["attempt"]) for event in own] == [("retried", 1), ("dead", 2)]
    assert {(event["reason"], event["error"]) for event in own} == {("ValueError", "50% broken")}
    assert [event["delay_s"] for event in own] == [0, None]
    (retried,) = lines(worker, f"task retried: name={tasks.fail.name} id={receipt.id} attempt=1 queue=default took=")
    (dead,) = lines(worker, f"task dead: name={tasks.fail.name} id={receipt.id} attempt=2 queue=default took=")
    assert "WARNING" in retried
    assert retried.endswith("retry_in=0.0s reason=ValueError error='50% broken'")
    assert "ERROR" in dead
    assert dead.endswith("reason=ValueError error='50% broken'")


@pytest.mark.core
def test_a_cancelled_task_is_an_event_when_it_has_stopped(stage: Stage) -> None:
    worker = start(stage)
    receipt = tasks.wait.push(stage.place)
    stage.wait_for_notes("runs")
    receipt.cancel()
    stage.wait_for_state(receipt, TaskState.CANCELLED)
    (line,) = lines(worker, "task cancelled: ")
    assert f"name={tasks.wait.name} id={receipt.id} attempt=1" in line
    assert "INFO" in line
    assert not worker.says("task succeeded: ")


@pytest.mark.core
def test_the_worker_whose_sweep_finds_them_reports_the_tasks_of_a_dead_one(stage: Stage) -> None:
    stage.needs(at_once=2)
    victim = start(stage, heartbeat_ttl=SHORT)
    revived, buried = tasks.wait_and_be_revived.push(stage.place), tasks.wait_and_be_buried.push(stage.place)
    stage.wait_for_notes("runs", 2)
    (lost,) = stage.boots()
    worker = start(stage)
    victim.kill()
    own = {event["kind"]: event for event in events(stage, "own", 2)}
    assert (own["revived"]["task_id"], own["revived"]["task_name"]) == (revived.id, tasks.wait_and_be_revived.name)
    assert (own["revived"]["attempt"], own["revived"]["worker_id"], own["revived"]["reason"]) == (1, lost, "lost")
    assert (own["dead"]["task_id"], own["dead"]["reason"], own["dead"]["worker_id"]) == (buried.id, "lost", lost)
    assert "WARNING" in lines(worker, f"task revived: name={tasks.wait_and_be_revived.name} id={revived.id}")[0]
    assert "ERROR" in lines(worker, f"task dead: name={tasks.wait_and_be_buried.name} id={buried.id}")[0]
    stage.go()
    revived.result(PATIENCE_S)
    assert [event["kind"] for event in events(stage, "all", 6)].count("succeeded") == 1


@pytest.mark.core
def test_a_task_whose_own_process_dies_is_revived_and_then_dead(stage: Stage) -> None:
    worker = start(stage)
    receipt = tasks.die_alone.push()
    stage.wait_for_death(receipt)
    own = events(stage, "own", 2)
    assert [(event["kind"], event["attempt"]) for event in own] == [("revived", 1), ("dead", 2)]
    assert own[1]["reason"] == "max_resurrections_exceeded"
    assert all("code 9" in event["error"] for event in own)
    assert len(lines(worker, f"task revived: name={tasks.die_alone.name} id={receipt.id} attempt=1")) == 1
    assert len(lines(worker, f"task dead: name={tasks.die_alone.name} id={receipt.id} attempt=2")) == 1


@pytest.mark.core
def test_a_broken_hook_is_logged_and_changes_nothing(stage: Stage) -> None:
    worker = start(stage)
    assert tasks.ignore_hooks.push().result(PATIENCE_S) == "done"
    lines(worker, "hook failed: on_start=broken")
    lines(worker, "hook failed: on_success=leaving")
    assert worker.says("error=ValueError: this hook is broken")
    assert tasks.ignore_hooks.push().result(PATIENCE_S) == "done", "the worker still works"
