"""What a task can know about itself."""

from __future__ import annotations

import pytest

from relier import RelierError, task_context
from tests.support.conformance import tasks
from tests.support.conformance.stage import PATIENCE_S, Stage


@pytest.mark.parametrize("where", tasks.WITH_CONTEXT)
def test_the_context_identifies_the_task(shared: Stage, where: str) -> None:
    task = tasks.WITH_CONTEXT[where]
    receipt = task.with_options(priority=3).push(1, b=5)
    told = receipt.result(PATIENCE_S)
    record = shared.record(receipt)
    assert told["task_id"] == receipt.id
    assert told["task_name"] == task.name == f"tests.support.conformance.tasks.{task.__name__}"
    assert told["attempt"] == 1
    assert told["fence"] == int(record.fence) > 0
    assert told["worker_id"] == record.worker_id in shared.boots()
    assert (told["args"], told["kwargs"]) == ((1,), {"b": 5})
    assert (told["a"], told["b"]) == (1, 5)
    assert told["lost"] is False
    assert told["metadata"]["queue"] == "default"
    assert told["metadata"]["priority"] == 3
    assert told["metadata"]["schema_version"] == 1
    assert 0 <= record.moved_ms - told["metadata"]["pushed_at_ms"] < 60_000


@pytest.mark.core
def test_each_of_many_tasks_at_once_sees_its_own_context(shared: Stage) -> None:
    shared.needs(at_once=2)
    count = min(20, shared.engine.at_once)
    receipts = tasks.own_context.push_many([(shared.place, "go")] * count)
    shared.wait_for_notes("runs", count)
    shared.go()
    assert [one.result(PATIENCE_S) for one in receipts] == [one.id for one in receipts]


def test_the_attempt_and_the_fence_grow_with_every_attempt(shared: Stage) -> None:
    receipt = tasks.fails_then_waits.push(shared.place)
    first, second = (line.split() for line in shared.wait_for_notes("runs", 2))
    assert (first[0], second[0]) == ("1", "2")
    assert int(first[1]) < int(second[1])
    shared.go()
    assert receipt.result(PATIENCE_S) == "went"


def test_task_context_outside_a_task_raises() -> None:
    with pytest.raises(RelierError, match="outside a running task"):
        _ = task_context.task_id
    assert repr(task_context) == "task_context (no task runs here)"
