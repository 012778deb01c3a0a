"""When a receipt polls again, how it reports a death, and how a push of many reports that some were refused."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from relier import (
    Client,
    ConfigurationError,
    HardTimeoutError,
    MaxResurrectionsExceededError,
    PartialPushError,
    RelierError,
    ResultTimeoutError,
    Settings,
    SyncTaskReceipt,
    TaskDeadError,
    TaskReceipt,
    rl_task,
    use_client,
)
from relier.errors import CorruptRecordError, StoreFullError
from relier.failure import failure_of, write_failure
from relier.ledger import keys
from relier.ledger.records import Accepted, HistoryEntry, Record, Spec, Submission, Task, new_worker_id
from relier.options import PushOptions
from relier.states import State
from relier.store.call import Durability
from relier.submit.bulk import Bulk
from relier.submit.client import place_of
from relier.submit.push import is_duplicate
from relier.submit.receipt import FIRST_POLL_S, SLOWEST_POLL_S, PollSchedule, cause_of_death
from tests.support.servers import Boot


@rl_task(name="tests.submit.echo")
async def echo(value: Any) -> Any:
    return value


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    client = Client(settings)
    use_client(client)
    yield client
    use_client(None)
    client.close()


# --- a wait that was too short ---------------------------------------------------------------------------------------


def serve(client: Client, *queues: str) -> None:
    """Register a worker that only reports which queues it serves."""
    assert client.run(client.ledger.register(new_worker_id(), 60_000, json.dumps({"queues": queues})))


async def too_late(client: Client, task_id: str) -> str:
    """Return the timeout error of both kinds of receipts."""
    with pytest.raises(ResultTimeoutError) as blocking:
        SyncTaskReceipt(task_id, client=client).result(timeout=0)
    with pytest.raises(ResultTimeoutError) as awaited:
        await TaskReceipt(task_id, client=client).result(timeout=0)
    told = [re.sub(r"after [\d.]+ s", "after 0.0 s", str(each.value)) for each in (blocking, awaited)]
    assert told[0] == told[1]
    return told[0]


@pytest.mark.anyio
@pytest.mark.parametrize("options", [{}, {"delay": 60}], ids=["queued", "scheduled"])
async def test_a_timeout_says_why_no_worker_takes_the_task(client: Client, options: dict[str, Any]) -> None:
    state, task_id = "scheduled" if options else "queued", echo.with_options(**options).push(1).id
    before, after = f"task {task_id} is still {state} after 0.0 s", f"; see `rl why {task_id}`"
    nobody = f"no worker is alive in {place_of(client.settings)}; start one with `rl worker`"
    assert await too_late(client, task_id) == f"{before}: {nobody}{after}"
    serve(client, "mail", "big")
    others = "no worker that is alive serves queue 'default'; start one with `rl worker --queue default`"
    assert await too_late(client, task_id) == f"{before}: {others}{after}"
    serve(client, "mail", "default")
    assert await too_late(client, task_id) == f"{before}; the task continues{after}"
    client.run(client.ledger.pause("default", 0))
    paused = "queue 'default' is paused; resume it with `rl queues resume default`"
    assert await too_late(client, task_id) == f"{before}: {paused}{after}"
    await client.aclose()


@pytest.mark.anyio
async def test_a_timeout_of_a_running_task_looks_for_no_reason(client: Client) -> None:
    worker_id = new_worker_id()
    client.run(client.ledger.register(worker_id, 60_000, json.dumps({"queues": ["mail"]})))
    task_id = echo.push(1).id
    client.run(client.ledger.claim(worker_id, 1, ["default"], 1))
    assert "is still running after 0.0 s; the task continues; see" in await too_late(client, task_id)
    await client.aclose()


# --- polls -----------------------------------------------------------------------------------------------------------


def test_polls_are_frequent_at_first_and_then_less() -> None:
    poll = PollSchedule(None)
    pauses = [poll.pause() or 0 for _ in range(40)]
    assert 0.75 * FIRST_POLL_S <= pauses[0] <= 1.25 * FIRST_POLL_S
    assert all(pause <= 1.25 * SLOWEST_POLL_S for pause in pauses)
    assert all(pause >= 0.75 * SLOWEST_POLL_S for pause in pauses[20:])
    assert all(later > earlier * 0.59 for earlier, later in pairwise(pauses))


def test_polls_without_a_limit_never_end() -> None:
    poll = PollSchedule(None)
    assert all(poll.pause() is not None for _ in range(1000))


def test_polls_never_go_past_the_time_given() -> None:
    poll = PollSchedule(0.001)
    pause = poll.pause()
    assert pause is None or pause <= 0.001
    until = time.monotonic() + 0.002
    while time.monotonic() < until:
        continue
    assert poll.pause() is None
    assert poll.waited >= 0.002
    assert PollSchedule(0).pause() is None


# --- deaths ----------------------------------------------------------------------------------------------------------


def dead(reason: str, *details: str) -> Task:
    spec = Spec(1, 0, None, None, None, None, None, None, None, "retry", Durability.MEMORY)
    record = Record("id", State.DEAD, 3, "17", "boot", 1, "mh", 1, spec, "default", "task", {"reason": reason})
    return Task(record, b"", None, None, {}, tuple(HistoryEntry("bury", 1, 1, "boot", "17", each) for each in details))


def test_the_result_of_a_task_that_died_of_an_exception_raises_it() -> None:
    cause = cause_of_death(dead("KeyError", write_failure(failure_of(KeyError("a")))))
    assert isinstance(cause, KeyError)
    assert cause.args == ("a",)
    assert isinstance(cause.__cause__, TaskDeadError)
    assert any("in the worker" in note for note in cause.__notes__)


def test_result_raises_the_error_of_the_last_attempt() -> None:
    details = [write_failure(failure_of(error)) for error in (ValueError("first"), KeyError("last"))]
    assert isinstance(cause_of_death(dead("KeyError", *details)), KeyError)


def test_a_hard_timeout_differs_from_a_timeout_raised_by_the_task() -> None:
    for error in (HardTimeoutError("late"), TimeoutError("own")):
        cause = cause_of_death(dead("TimeoutError", write_failure(failure_of(error))))
        assert type(cause) is type(error)


@pytest.mark.parametrize("reason", ["max_resurrections_exceeded", "workers_kept_dying"])
def test_too_many_deaths_raise_max_resurrections_exceeded(reason: str) -> None:
    cause = cause_of_death(dead(reason, "its process was killed by signal 9 (SIGKILL)"))
    assert isinstance(cause, MaxResurrectionsExceededError)
    assert "SIGKILL" in cause.message


@pytest.mark.parametrize("details", [(), ("lease ran out",), ('{"type":"nowhere:Error","message":"hm"}',)], ids=len)
def test_an_error_class_unknown_here_raises_task_dead_error(details: tuple[str, ...]) -> None:
    cause = cause_of_death(dead("lost", *details))
    assert type(cause) is TaskDeadError
    assert cause.reason == "lost"
    assert "rl dlq replay" in str(cause)


# --- identity --------------------------------------------------------------------------------------------------------


def test_invalid_receipt_arguments_are_reported(client: Client) -> None:
    for wrong in (None, "", 5):
        with pytest.raises(ConfigurationError, match="a receipt needs the id of a task, as returned by a push, not"):
            echo.sync_receipt(wrong)  # type: ignore[arg-type]
    with pytest.raises(
        ConfigurationError, match="timeout must be a number of seconds, or None to wait forever, not '5'"
    ):
        echo.sync_receipt("nothing").result(timeout="5")  # type: ignore[arg-type]


def test_receipts_are_equal_by_id(client: Client) -> None:
    one, same, other = SyncTaskReceipt[Any]("a"), SyncTaskReceipt[Any]("a", duplicate=True), SyncTaskReceipt[Any]("b")
    assert one == same != other
    assert len({one, same, other}) == 2
    assert one != "a"
    assert repr(one) == "SyncTaskReceipt('a')"
    assert repr(same) == "SyncTaskReceipt('a', duplicate=True)"


@pytest.mark.parametrize(
    ("status", "nonce", "duplicate"),
    [("new", "", False), ("exists", "", False), ("exists", "n", True), ("duplicate", "", True), ("ended", "n", True)],
)
def test_a_push_sent_again_is_no_duplicate_of_itself(status: Any, nonce: str, duplicate: bool) -> None:
    """If a fresh id already exists, it is this very push, sent again after a lost reply."""
    task = Submission(id="a", name="t", payload=b"", nonce=nonce)
    assert is_duplicate(task, Accepted(status, "a", State.QUEUED, 1)) is duplicate


def test_a_foreign_key_in_place_of_a_task_is_reported(client: Client) -> None:
    client.open()
    client.sync_store.command("RPUSH", keys.spell(client.ledger.prefix, "task", "taken"), "no task")
    with pytest.raises(CorruptRecordError, match="taken"):
        echo.with_options(task_id="taken").push(1)


# --- some of many ----------------------------------------------------------------------------------------------------


def bulk_of(n: int) -> Bulk:
    """Return a push_many of n tasks, a hundred per chunk, checked and ready to be sent."""
    client = Client(Settings(admission_limit=0))
    bulk = Bulk(echo, PushOptions(), client, map(str, range(n)))
    bulk.add([((1,), {})] * n)
    return bulk


def accepted(chunk: list[Submission]) -> list[Accepted]:
    return [Accepted("new", task.id, State.QUEUED, 1) for task in chunk]


def test_receipts_of_accepted_tasks_are_in_order() -> None:
    bulk = bulk_of(150)
    while chunks := bulk.next_piece():
        bulk.answered([accepted(chunk) for chunk in chunks])
    assert [task.id for task in bulk.pushed()] == [*map(str, range(150))]


def test_the_error_of_a_partial_push_names_the_refused_tasks() -> None:
    bulk = bulk_of(101)
    (first,) = bulk.next_piece()
    bulk.answered([accepted(first)])
    bulk.next_piece()
    full = StoreFullError("no room")
    bulk.answered([full])
    assert bulk.next_piece() == []
    with pytest.raises(PartialPushError, match=r"100 of 101 tasks were accepted.*StoreFullError: no room") as caught:
        bulk.pushed()
    assert caught.value.outcomes == dict.fromkeys(map(str, range(100))) | {"100": full}
    assert [*caught.value.outcomes] == [*map(str, range(101))]


def test_if_all_tasks_are_refused_their_error_is_raised() -> None:
    bulk = bulk_of(101)
    bulk.next_piece()
    bulk.answered([StoreFullError("no room")])
    with pytest.raises(StoreFullError, match="no room") as caught:
        bulk.pushed()
    assert caught.value.task_ids == tuple(map(str, range(101)))


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["push_many", "apush_many"])
async def test_if_the_store_fills_up_midway_the_error_names_the_accepted_tasks(
    boot: Boot, settings: Settings, way: str
) -> None:
    server = boot(config={"maxmemory-policy": "noeviction"})
    client = Client(Settings(redis_url=server.url, namespace=settings.namespace))
    use_client(client)
    try:
        client.open()
        echo.push("the script is loaded")
        used = int(server.info("memory")["used_memory"])
        server.command("CONFIG", "SET", "maxmemory", used + 3_000_000)
        calls = [("x" * 100_000,)] * 100
        with pytest.raises(PartialPushError) as caught:
            _ = echo.push_many(calls) if way == "push_many" else await echo.apush_many(calls)
        server.command("CONFIG", "SET", "maxmemory", 0)
        outcomes = caught.value.outcomes
        assert len(outcomes) == 100
        there = {task_id for task_id in outcomes if echo.sync_receipt(task_id).state() == "queued"}
        assert there == {task_id for task_id, error in outcomes.items() if error is None}
        assert 0 < len(there) < 100
        assert all(error is None or isinstance(error, RelierError) for error in outcomes.values())
    finally:
        use_client(None)
        await client.aclose()


def test_one_connection_serves_many_pushes(boot: Boot, settings: Settings, tmp_path: Path) -> None:
    server = boot()
    client = Client(Settings(redis_url=server.url, namespace=settings.namespace))
    use_client(client)
    try:
        echo.push(0)
        before = int(server.info("stats")["total_connections_received"])
        for number in range(20):
            echo.push(number)
        after = int(server.info("stats")["total_connections_received"])
        assert after - before == 1  # the one that asks
    finally:
        use_client(None)
        client.close()
