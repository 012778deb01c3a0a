"""Features that only a Celery worker has, and that must not cost a task: recycled and growing pools, limits, adopted
tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import celery
import pytest

from relier import SyncTaskReceipt, TaskState, use_client
from relier.celery import install
from tests.support.conformance import tasks
from tests.support.conformance.engine import Celery, Engine
from tests.support.conformance.stage import PATIENCE_S, Stage
from tests.support.servers import Server

OPTIONS: dict[str, tuple[str, ...]] = {
    "recycled": ("--max-tasks-per-child", "1"),
    "growing": ("--autoscale", "3,1"),
}


@pytest.fixture(scope="module", params=["plain"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Celery("prefork", 3, 3, options=OPTIONS.get(request.param, ()))


@pytest.fixture
def producer(stage: Stage, server: Server) -> Iterator[Any]:
    app = celery.Celery("producer", broker="memory://", set_as_current=False)
    install(app, adopt=["conformance.*"], settings=stage.settings)
    use_client(stage.client)
    yield app
    app.close()


def send(producer: Any, name: str, *args: Any) -> SyncTaskReceipt[Any]:
    return SyncTaskReceipt[Any](producer.send_task(f"conformance.{name}", args, queue="default").id)


def test_cancelling_an_adopted_task_stops_it_and_not_its_worker(stage: Stage, producer: Any) -> None:
    stage.start_worker()
    receipt = send(producer, "wait_by_celery", stage.place)
    stage.wait_for_notes("runs")
    assert receipt.cancel() is True
    assert stage.wait_for_end(receipt).record.state.value == "cancelled"
    sent = [send(producer, "double", number) for number in range(6)]
    assert [stage.wait_for_end(one).result for one in sent] == [b"0", b"2", b"4", b"6", b"8", b"10"]
    assert stage.count("revived") == 0


def test_celery_logs_the_events_of_adopted_tasks_and_hooks_get_them_too(stage: Stage, producer: Any) -> None:
    module = "tests.support.conformance.event_tasks"
    worker = stage.start_worker(module, env={"EVENTS_FOLDER": stage.place})
    double, failed = send(producer, "double", 4), send(producer, "fail_by_celery")
    stage.wait_for_end(double)
    stage.wait_for_death(failed)
    events = [json.loads(line) for line in stage.wait_for_notes("all", 4)]
    assert sorted((event["kind"], event["task_id"]) for event in events) == sorted(
        [("started", double.id), ("succeeded", double.id), ("started", failed.id), ("dead", failed.id)]
    )
    assert worker.says(f"Task conformance.double[{double.id}] succeeded in")
    assert worker.says(f"Task conformance.fail_by_celery[{failed.id}] raised unexpected: ValueError")
    assert not worker.says("task started: ")
    assert not worker.says("task succeeded: ")
    assert not worker.says("task dead: ")


def test_an_adopted_task_that_forks_and_returns_in_both_processes(stage: Stage, producer: Any) -> None:
    """The forked copy would report for the pool process that it was forked from, over the same pipe."""
    worker = stage.start_worker()
    sent = [send(producer, "fork_by_celery", stage.place) for _ in range(3)]
    assert [stage.wait_for_end(one).result for one in sent] == [b"true"] * 3
    assert len(stage.notes("forked")) == 6
    sent = [send(producer, "double", number) for number in range(6)]
    assert [stage.wait_for_end(one).result for one in sent] == [b"0", b"2", b"4", b"6", b"8", b"10"]
    worker.stop()
    assert worker.exit_code() == stage.engine.clean


def test_rate_limited_jobs_are_handed_back_at_a_drain(stage: Stage, producer: Any) -> None:
    worker = stage.start_worker()
    receipts = [send(producer, "once_a_minute", stage.place) for _ in range(2)]
    stage.wait_for_notes("runs")
    for receipt in receipts:
        stage.wait_for_state(receipt, TaskState.RUNNING, TaskState.DONE)
    worker.stop()
    assert worker.exit_code() == stage.engine.clean
    assert sorted(stage.record(one).state.value for one in receipts) == ["done", "queued"]
    assert {stage.record(one).attempt for one in receipts} == {0, 1}


@pytest.mark.parametrize("engine", ["recycled"], indirect=True)
def test_a_process_recycled_after_its_task_does_not_count_as_a_death(stage: Stage) -> None:
    stage.start_worker()
    receipts = tasks.count.push_many([(stage.place, number) for number in range(12)])
    assert [one.result(PATIENCE_S) for one in receipts] == [*range(12)]
    assert len(stage.notes("counted")) == 12
    assert stage.count("revived") == 0


@pytest.mark.parametrize("engine", ["growing"], indirect=True)
def test_an_autoscaling_pool_grows(stage: Stage) -> None:
    stage.start_worker()
    receipts = tasks.wait.push_many([(stage.place,)] * 3)
    stage.wait_for_notes("runs", 3)
    stage.go()
    assert [one.result(PATIENCE_S) for one in receipts] == ["attempt 1"] * 3
