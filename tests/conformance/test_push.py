"""A push becomes a record, runs, and has a result."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from relier import Durability, PayloadEncodingError, SyncTaskReceipt, TaskReceipt, TaskState, registry, trace
from relier.options import TaskOptions
from relier.task import RlTask
from tests.support import ROOT
from tests.support.conformance import more_tasks, tasks
from tests.support.conformance.engine import environment_of
from tests.support.conformance.stage import PATIENCE_S, Stage


@pytest.mark.core
@pytest.mark.parametrize("task", [tasks.add, tasks.aadd, tasks.add_alone], ids=lambda task: task.__name__)
def test_the_return_value_of_a_task_is_the_result_of_its_receipt(shared: Stage, task: RlTask[Any, int]) -> None:
    receipt = task.push(2, b=3)
    assert receipt.result(PATIENCE_S) == 5
    assert receipt.state() is TaskState.DONE
    assert receipt.duplicate is False
    assert receipt.durability is Durability.MEMORY


@pytest.mark.anyio
@pytest.mark.parametrize("task", [tasks.add, tasks.aadd, tasks.add_alone], ids=lambda task: task.__name__)
async def test_apush_and_push_give_the_same(shared: Stage, task: RlTask[Any, int]) -> None:
    receipt = await task.apush(2, b=3)
    assert isinstance(receipt, TaskReceipt)
    assert await receipt.result(timeout=PATIENCE_S) == 5
    assert await receipt.state() is TaskState.DONE
    assert (await receipt.info()).record.attempt == 1


@pytest.mark.anyio
async def test_push_works_where_a_loop_runs(shared: Stage) -> None:
    receipt = tasks.add.push(2, 3)
    assert isinstance(receipt, SyncTaskReceipt)
    assert receipt.result(PATIENCE_S) == 5
    assert [one.result(PATIENCE_S) for one in tasks.add.push_many([(1,), (2,)])] == [1, 2]


@pytest.mark.anyio
async def test_many_concurrent_pushes_all_run(shared: Stage) -> None:
    receipts = await asyncio.gather(*(tasks.aadd.apush(number) for number in range(50)))
    assert await asyncio.gather(*(one.result(PATIENCE_S) for one in receipts)) == [*range(50)]


@pytest.mark.anyio
async def test_apush_many_answers_in_order_with_one_receipt_each(shared: Stage) -> None:
    calls: list[Any] = [(number,) if number % 2 else {"a": number, "b": 1000} for number in range(250)]
    receipts = await tasks.aadd.apush_many(calls)
    assert len({one.id for one in receipts}) == 250
    assert not any(one.duplicate for one in receipts)
    results = [await one.result(PATIENCE_S) for one in receipts]
    assert results == [number if number % 2 else number + 1000 for number in range(250)]


def test_push_many_takes_tuples_and_dicts_and_answers_in_order(shared: Stage) -> None:
    receipts = tasks.add.push_many(iter([(1, 2), {"a": 3}, (4,), {"b": 5, "a": 6}]))
    assert [one.result(PATIENCE_S) for one in receipts] == [3, 3, 4, 11]


@pytest.mark.anyio
async def test_pushing_none_at_all_gives_no_receipts(stage: Stage) -> None:
    assert tasks.add.push_many([]) == []
    assert await tasks.add.apush_many(iter(())) == []


@pytest.mark.anyio
async def test_a_direct_call_runs_the_function_and_pushes_nothing(stage: Stage) -> None:
    assert tasks.add(2, 3) == 5
    assert await tasks.aadd(2, b=3) == 5
    with pytest.raises(tasks.DeclinedError):
        await tasks.decline("stolen", 1)
    assert stage.count("submitted") == 0


def test_a_result_of_none_is_none(shared: Stage) -> None:
    receipt = tasks.nothing.push()
    assert receipt.result(PATIENCE_S) is None
    assert shared.task(receipt).result is None


def test_functions_of_the_same_name_in_two_modules_are_separate_tasks(stage: Stage) -> None:
    stage.start_worker("tests.support.conformance.tasks", "tests.support.conformance.more_tasks")
    assert tasks.who_am_i.name != more_tasks.who_am_i.name
    receipts = [tasks.who_am_i.push(), more_tasks.who_am_i.push()]
    assert [one.result(PATIENCE_S) for one in receipts] == ["tasks", "more_tasks"]


def test_an_argument_that_cannot_be_encoded_is_refused_and_nothing_is_written(stage: Stage) -> None:
    push = tasks.echo.with_options(task_id="refused")
    with pytest.raises(PayloadEncodingError, match=r"argument 'value' → \[1\]"):
        push.push([1, object()])
    with pytest.raises(PayloadEncodingError):
        tasks.echo.push_many([("good",), (object(),)])
    assert stage.count("submitted") == 0
    assert tasks.echo.sync_receipt("refused").state() is TaskState.NOT_FOUND


@pytest.mark.anyio
async def test_apush_refuses_the_same_arguments_as_push(stage: Stage) -> None:
    with pytest.raises(PayloadEncodingError):
        await tasks.echo.apush(object())
    with pytest.raises(PayloadEncodingError):
        await tasks.echo.apush_many([("good",), {"value": object()}])
    assert stage.count("submitted") == 0


def test_arguments_that_do_not_fit_are_refused_as_by_a_call(stage: Stage) -> None:
    push: Any = tasks.add
    with pytest.raises(TypeError, match="add"):
        push.push()
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        push.push(1, c=2)
    with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
        push.push_many([(1,), (1, 2, 3)])
    assert stage.count("submitted") == 0


@pytest.mark.core
@pytest.mark.parametrize("kind", tasks.PARENTS)
def test_a_task_can_push_tasks(shared: Stage, kind: str) -> None:
    child = tasks.PARENTS[kind].push(41).result(PATIENCE_S)
    assert tasks.add.sync_receipt(child).result(PATIENCE_S) == 42


@pytest.mark.parametrize("task", [tasks.parent_that_waits, tasks.parent_that_waits_alone], ids=["async", "isolated"])
def test_a_task_can_wait_for_tasks_that_it_pushed(shared: Stage, task: RlTask[[int], int]) -> None:
    shared.needs(at_once=2)
    assert task.push(41).result(PATIENCE_S) == 42


def test_many_threads_can_push_at_once(stage: Stage) -> None:
    """They share connections, from the first push on."""
    with ThreadPoolExecutor(16) as pool:
        receipts = [*pool.map(lambda number: tasks.add.push(number), range(200))]
    assert len({receipt.id for receipt in receipts}) == 200
    assert not any(receipt.duplicate for receipt in receipts)
    assert stage.count("submitted") == 200


def test_apush_works_in_one_loop_after_another(shared: Stage) -> None:
    """As in a sync framework that calls asyncio.run in each request."""

    async def call(number: int) -> int:
        return await (await tasks.aadd.apush(number)).result(timeout=PATIENCE_S)

    assert [asyncio.run(call(number)) for number in range(3)] == [0, 1, 2]


SCRIPTS = {
    "sync": "from tests.support.conformance import tasks; print(tasks.add.push(20, 1).result(20))",
    "async": """
import asyncio
from tests.support.conformance import tasks
async def main():
    receipts = await tasks.add.apush_many([(20, 1)])
    print(await receipts[0].result(timeout=20))
asyncio.run(main())
""",
}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_script_uses_the_settings_of_its_environment_and_exits_without_output(shared: Stage, kind: str) -> None:
    env = os.environ | environment_of(shared.settings)
    command = [sys.executable, "-W", "error", "-c", SCRIPTS[kind]]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("21", "", 0)


def test_the_trace_is_passed_from_a_push_to_its_task_and_to_tasks_it_pushes(shared: Stage) -> None:
    told = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    before = trace.inherited.set(told)
    try:
        child = tasks.traced_parent.push().result(PATIENCE_S)
    finally:
        trace.inherited.reset(before)
    assert tasks.ctx_by_proxy.sync_receipt(child).result(PATIENCE_S)["metadata"]["trace"] == told


def test_a_task_not_registered_here_can_be_pushed_by_name_and_options(shared: Stage) -> None:
    elsewhere: RlTask[Any, int] = RlTask(tasks.add.fn, TaskOptions(name=tasks.add.name))
    assert registry.find(tasks.add.name) is tasks.add
    assert elsewhere.push(20, 1).result(PATIENCE_S) == 21


def test_the_receipt_of_an_fsync_push_has_its_durability(shared: Stage) -> None:
    if not shared.client.sync_store.probe().waitaof:
        pytest.skip("this server has no WAITAOF")
    receipt = tasks.add.with_options(durability="fsync").push(1, 2)
    assert receipt.durability is Durability.FSYNC
    assert shared.record(receipt).spec.durability is Durability.FSYNC
    assert receipt.result(PATIENCE_S) == 3


def test_an_idle_worker_starts_a_task_at_once(shared: Stage) -> None:
    """The bell wakes the worker, so it does not wait for its next poll."""
    begun = []
    for _ in range(5):
        pushed = time.time()
        begun.append(tasks.when.push().result(PATIENCE_S) - pushed)
    assert min(begun) < 0.2
