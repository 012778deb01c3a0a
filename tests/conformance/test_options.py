"""Options of a single push."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relier import ConfigurationError, TaskCancelledError, TaskState
from relier.errors import InvalidSubmissionError
from tests.support.conformance import tasks
from tests.support.conformance.stage import PATIENCE_S, Stage
from tests.support.servers import wait_until


def due_ms(stage: Stage, task_id: str) -> float:
    return float(stage.command("ZSCORE", stage.key("due"), task_id))


@pytest.mark.parametrize("delay", [0.3, timedelta(milliseconds=300)], ids=["seconds", "timedelta"])
def test_a_delayed_task_starts_at_its_time_and_not_before(shared: Stage, delay: Any) -> None:
    pushed = time.time()
    receipt = tasks.when.with_options(delay=delay).push()
    assert receipt.state() is TaskState.SCHEDULED
    begun = receipt.result(PATIENCE_S)
    assert begun - pushed >= 0.299


def test_a_task_with_an_eta_starts_at_that_time(shared: Stage) -> None:
    eta = datetime.now(UTC) + timedelta(seconds=0.3)
    receipt = tasks.when.with_options(eta=eta).push()
    assert receipt.state() is TaskState.SCHEDULED
    assert receipt.result(PATIENCE_S) >= eta.timestamp() - 0.001


def test_delay_and_eta_can_name_the_same_moment(stage: Stage) -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)
    by_eta = tasks.when.with_options(eta=moment).push()
    by_delay = tasks.when.with_options(delay=3600).push()
    assert due_ms(stage, by_eta.id) == pytest.approx(1000 * moment.timestamp(), abs=1)
    assert due_ms(stage, by_delay.id) == pytest.approx(due_ms(stage, by_eta.id), abs=30_000)


def test_an_eta_that_has_passed_means_now(shared: Stage) -> None:
    receipt = tasks.aadd.with_options(eta=datetime.now(UTC) - timedelta(days=1)).push(1)
    assert receipt.result(PATIENCE_S) == 1


def test_a_delay_of_zero_means_now(stage: Stage) -> None:
    assert tasks.aadd.with_options(delay=0).push(1).state() is TaskState.QUEUED


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 1, "eta": datetime(2099, 1, 1, tzinfo=UTC)},
        {"eta": datetime(2099, 1, 1)},  # noqa: DTZ001 - that is the point
        {"eta": 5},
        {"delay": -1},
        {"delay": "1"},
        {"delay": True},
        {"delay": float("nan")},
        {"delay": float("inf")},
        {"expires": -1},
        {"expires": datetime(2099, 1, 1)},  # noqa: DTZ001
        {"priority": 10},
        {"queue": "two\nlines"},
        {"queue": ""},
        {"task_id": "two words"},
        {"task_id": ""},
    ],
    ids=str,
)
def test_an_option_that_makes_no_sense_is_refused_and_nothing_is_written(stage: Stage, options: Any) -> None:
    with pytest.raises(InvalidSubmissionError):
        tasks.aadd.with_options(**options).push(1)
    assert stage.count("submitted") == 0


def test_a_durability_that_does_not_exist_is_refused(stage: Stage) -> None:
    with pytest.raises(ConfigurationError, match="eternal"):
        tasks.aadd.with_options(durability="eternal")


# --- expiry --------------------------------------------------------------------------------------------------------


def wait_for_store_time(stage: Stage, ms: int) -> None:
    wait_until(lambda: stage.stats().now_ms > ms, what="the store's clock goes on")


@pytest.mark.parametrize("how", ["seconds", "moment"])
def test_a_task_that_expired_while_it_waited_never_runs(shared: Stage, how: str) -> None:
    shared.hold("held")
    expires: Any = 0.05 if how == "seconds" else datetime.now(UTC) + timedelta(milliseconds=50)
    receipt = tasks.wait.with_options(queue="held", expires=expires).push(shared.place)
    limit = shared.record(receipt).spec.expires_ms
    assert limit is not None
    wait_for_store_time(shared, limit)
    shared.let_go("held")
    ended = shared.wait_for_end(receipt)
    assert (ended.record.state.value, ended.record.reason) == ("cancelled", "expired")
    assert shared.notes("runs") == []
    with pytest.raises(TaskCancelledError, match="expired"):
        receipt.result()


def test_a_task_that_expires_before_it_is_due_never_runs(shared: Stage) -> None:
    receipt = tasks.wait.with_options(delay=0.1, expires=0.05).push(shared.place)
    ended = shared.wait_for_end(receipt)
    assert (ended.record.state.value, ended.record.reason) == ("cancelled", "expired")
    assert shared.notes("runs") == []


def test_a_task_that_began_in_time_may_run_past_its_expiry(shared: Stage) -> None:
    receipt = tasks.wait.with_options(expires=0.5).push(shared.place)
    shared.wait_for_notes("runs")
    wait_for_store_time(shared, shared.record(receipt).spec.expires_ms or 0)
    shared.go()
    assert receipt.result(PATIENCE_S) == "attempt 1"


# --- priority and queues -------------------------------------------------------------------------------------------


def test_tasks_of_higher_priority_go_first_then_the_older(stage: Stage) -> None:
    pushed = [(0, 0), (1, -9), (2, 5), (3, 0), (4, 5)]
    receipts: list[Any] = [
        tasks.count.with_options(priority=priority).push(stage.place, number) for number, priority in pushed
    ]
    receipts.append(tasks.urgent.push(stage.place, 5))
    stage.start_worker(concurrency=1)
    for receipt in receipts:
        receipt.result(PATIENCE_S)
    assert stage.notes("counted") == ["5", "2", "4", "0", "3", "1"]


def test_a_task_goes_to_the_queue_of_its_push_or_of_its_options(shared: Stage) -> None:
    by_push, own = tasks.echo.with_options(queue="other").push(1), tasks.echo_on_other.push(2)
    assert [by_push.result(PATIENCE_S), own.result(PATIENCE_S)] == [1, 2]
    assert {shared.record(by_push).queue, shared.record(own).queue} == {"other"}
    assert shared.record(tasks.echo_on_other.with_options(queue="default").push(3)).queue == "default"


def test_tasks_wait_in_a_queue_that_no_worker_serves(stage: Stage) -> None:
    waiting = tasks.aadd.with_options(queue="somewhere else").push(1)
    stage.start_worker(concurrency=1)
    assert tasks.aadd.push(2).result(PATIENCE_S) == 2
    stage.wait_for_beats(1)
    assert waiting.state() is TaskState.QUEUED


def test_a_worker_prefers_its_queues_in_the_order_given(stage: Stage) -> None:
    receipts = [
        tasks.count.with_options(queue=queue).push(stage.place, number)
        for number, queue in enumerate(["second", "first", "second", "first"])
    ]
    stage.start_worker(queues=("first", "second"), concurrency=1)
    for receipt in receipts:
        receipt.result(PATIENCE_S)
    assert stage.notes("counted") == ["1", "3", "0", "2"]


# --- ids -----------------------------------------------------------------------------------------------------------


def test_a_task_id_given_twice_is_one_task(shared: Stage) -> None:
    name = f"order-{time.time_ns()}"
    first = tasks.wait.with_options(task_id=name).push(shared.place)
    shared.wait_for_notes("runs")
    second = tasks.wait.with_options(task_id=name).push(shared.place)
    assert (first.id, second.id) == (name, name)
    assert (first.duplicate, second.duplicate) == (False, True)
    shared.go()
    assert [first.result(PATIENCE_S), second.result(PATIENCE_S)] == ["attempt 1", "attempt 1"]
    third = tasks.wait.with_options(task_id=name).push(shared.place)
    assert third.duplicate is True
    assert third.result(PATIENCE_S) == "attempt 1"
    assert len(shared.notes("runs")) == 1


@pytest.mark.anyio
async def test_a_task_id_given_twice_to_apush_is_one_task(stage: Stage) -> None:
    push = tasks.aadd.with_options(task_id="one")
    assert [(await push.apush(1)).duplicate, (await push.apush(2)).duplicate] == [False, True]
    assert stage.count("submitted") == 1


def test_one_id_for_many_tasks_is_refused(stage: Stage) -> None:
    with pytest.raises(ConfigurationError, match="task_id"):
        tasks.aadd.with_options(task_id="one").push_many([(1,), (2,)])
    assert stage.count("submitted") == 0


def test_options_hold_for_every_task_of_a_push_many(stage: Stage) -> None:
    receipts = tasks.aadd.with_options(delay=3600, priority=4, queue="later").push_many([(1,), {"a": 2}])
    for receipt in receipts:
        record = stage.record(receipt)
        assert (record.state.value, record.spec.priority, record.queue) == ("scheduled", 4, "later")
