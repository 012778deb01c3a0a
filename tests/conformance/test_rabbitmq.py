"""A Celery worker on RabbitMQ. The broker carries only Celery's own messages, so its state must not affect our
tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import celery
import pytest

from relier import SyncTaskReceipt, TaskState, use_client
from relier.celery import install
from tests.support.conformance import tasks
from tests.support.conformance.engine import Celery, Engine
from tests.support.conformance.stage import PATIENCE_S, Stage
from tests.support.rabbitmq import Rabbit
from tests.support.servers import wait_until

pytestmark = [pytest.mark.engines, pytest.mark.xdist_group("rabbitmq")]  # one node for all of them


@pytest.fixture(scope="module")
def rabbit() -> Iterator[Rabbit]:
    node = Rabbit()
    try:
        yield node.start()
    finally:
        node.end()


@pytest.fixture(scope="module")
def engine(rabbit: Rabbit) -> Engine:
    return Celery("prefork", 4, 4, rabbit.url)


@pytest.fixture
def producer(stage: Stage, rabbit: Rabbit) -> Iterator[Any]:
    """Return a process that sends tasks with Celery, from an app without the tasks' code."""
    app = celery.Celery("producer", broker=rabbit.url, set_as_current=False)
    install(app, adopt=["conformance.*"], settings=stage.settings)
    use_client(stage.client)
    yield app
    app.close()


def receipt_of(sent: Any) -> SyncTaskReceipt[Any]:
    return SyncTaskReceipt[Any](sent.id)


def both_wait(stage: Stage, producer: Any) -> list[SyncTaskReceipt[Any]]:
    """Push an `@rl_task` and an adopted task, and let both wait."""
    sent = producer.send_task("conformance.wait_by_celery", (stage.place,), queue="default")
    return [tasks.wait.push(stage.place), receipt_of(sent)]


def test_a_worker_runs_our_tasks_and_celerys_and_exits_cleanly(stage: Stage, producer: Any) -> None:
    worker = stage.start_worker()
    assert tasks.add.push(1, 2).result(PATIENCE_S) == 3
    assert (
        stage.wait_for_end(receipt_of(producer.send_task("conformance.double", (21,), queue="default"))).result == b"42"
    )
    producer.send_task("plain.note", (stage.place, "by the broker"), queue="default")
    assert stage.wait_for_notes("plain") == ["by the broker"]
    worker.stop()
    assert worker.exit_code() == stage.engine.clean


def test_tasks_that_do_not_finish_are_handed_back(stage: Stage, producer: Any) -> None:
    worker = stage.start_worker(graceful_shutdown_timeout=0.1)
    receipts = [
        tasks.wait.push(stage.place),
        receipt_of(producer.send_task("conformance.wait_by_celery", (stage.place,), queue="default")),
    ]
    stage.wait_for_notes("runs", 2)
    worker.stop()
    assert worker.exit_code() == stage.engine.forced
    assert [(stage.record(one).state.value, stage.record(one).attempt) for one in receipts] == [("queued", 0)] * 2


def test_a_killed_workers_tasks_run_again(stage: Stage, producer: Any) -> None:
    victim = stage.start_worker(heartbeat_ttl=1)
    receipts = [
        tasks.wait.push(stage.place),
        receipt_of(producer.send_task("conformance.wait_by_celery", (stage.place,), queue="default")),
    ]
    stage.wait_for_notes("runs", 2)
    victim.kill()
    stage.start_worker()
    stage.wait_for_notes("runs", 4)
    stage.go()
    for receipt in receipts:
        assert stage.wait_for_end(receipt).record.attempt == 2


def test_tasks_continue_while_the_broker_is_unreachable(stage: Stage, producer: Any, rabbit: Rabbit) -> None:
    if not rabbit.own:
        pytest.skip("this RabbitMQ is not ours to stop")
    worker = stage.start_worker()
    running = [
        tasks.wait.push(stage.place),
        receipt_of(producer.send_task("conformance.wait_by_celery", (stage.place,), queue="default")),
    ]
    stage.wait_for_notes("runs", 2)
    rabbit.stop()
    try:
        wait_until(lambda: worker.says("Trying to re-establish"), PATIENCE_S, "the worker misses its broker")
        pushed = tasks.add.push_many([(number,) for number in range(50)])
        assert [one.result(PATIENCE_S) for one in pushed] == [*range(50)]
        sent = receipt_of(producer.send_task("conformance.double", (4,), queue="default"))
        assert stage.wait_for_end(sent).result == b"8"
        stage.go()
        assert {stage.wait_for_end(one).record.attempt for one in running} == {1}
    finally:
        rabbit.start()
    producer.send_task("plain.note", (stage.place, "again"), queue="default")
    assert stage.wait_for_notes("plain") == ["again"]
    assert stage.count("revived") == stage.count("dead") == 0
    worker.stop()
    assert worker.exit_code() == stage.engine.clean


def test_a_task_sent_while_broker_and_worker_are_down_is_accepted_and_runs(
    stage: Stage, producer: Any, rabbit: Rabbit
) -> None:
    if not rabbit.own:
        pytest.skip("this RabbitMQ is not ours to stop")
    rabbit.stop()
    try:
        sent = receipt_of(producer.send_task("conformance.double", (21,), queue="default"))
        assert sent.state() is TaskState.QUEUED
        worker = stage.start_worker()  # it need not have a broker, either
        assert stage.wait_for_end(sent).result == b"42"
        worker.stop()
        assert worker.exit_code() == stage.engine.clean
    finally:
        rabbit.start()
