"""Idempotency at submit: which calls are equal, what a second push gets, and what frees the key."""

from __future__ import annotations

import asyncio
import inspect
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest

from relier import (
    ConfigurationError,
    DuplicateTaskError,
    IdempotencyInFlightError,
    InvalidSubmissionError,
    PartialPushError,
    PayloadEncodingError,
    Retries,
    TaskCancelledError,
    TaskContext,
    TaskInFlightError,
    TaskState,
    rl_task,
)
from relier.failure import failure_of
from relier.ledger.records import Task
from relier.options import TaskOptions
from relier.run.outcome import Failed
from relier.states import State
from tests.support.crew import Crew, until
from tests.support.jobs import shop, store

pytestmark = pytest.mark.anyio
NAN = float("nan")


@dataclass
class Line:
    sku: str
    tags: dict[int, str] = field(default_factory=dict)


class Item(pydantic.BaseModel):
    sku: str
    count: int = 1


class Point(msgspec.Struct):
    x: float
    y: float = 0.0


ITEM = Item(sku="a")


@rl_task(idempotent=True)
def charge(customer: str, cents: int = 100, *, currency: str = "EUR", ctx: TaskContext | None = None) -> str:
    return f"{customer} {cents} {currency}"


@rl_task(idempotent=True)
def anything(*args: Any, **kwargs: Any) -> None: ...


@rl_task(idempotent=True)
def models(item: Item, line: Line | None = None, point: Point = Point(1.0)) -> None: ...  # noqa: B008 - on purpose


# --- which calls are the same ------------------------------------------------------------------------------------

Call = tuple[tuple[Any, ...], dict[str, Any]]


def call(*args: Any, **kwargs: Any) -> Call:
    return args, kwargs


SAME: list[tuple[Any, list[Call]]] = [
    (
        charge,
        [
            call("ann"),
            call("ann", 100),
            call(customer="ann"),
            call(cents=100, customer="ann"),
            call("ann", currency="EUR", cents=100),
        ],
    ),
    (anything, [call({"a": 1, "b": {"c": 2, "d": 3}}), call({"b": {"d": 3, "c": 2}, "a": 1})]),
    (anything, [call({2: "b", 10: "j"}), call({10: "j", 2: "b"})]),
    (anything, [call([{(1, 2): {"x", "y"}, None: 1}]), call([{None: 1, (1, 2): {"y", "x"}}])]),
    (anything, [call(a=1, b=2), call(b=2, a=1)]),
    (anything, [call(**{"~": 1, "v": 2}), call(**{"v": 2, "~": 1})]),
    (anything, [call(NAN), call(float("nan"))]),
    (anything, [call({"amount": Decimal("NaN")}), call({"amount": Decimal("NaN")})]),
    (anything, [call(datetime(2026, 1, 1, tzinfo=UTC), b"x"), call(datetime(2026, 1, 1, tzinfo=UTC), b"x")]),
    (models, [call(ITEM), call(Item(sku="a", count=1)), call({"sku": "a"}), call(item={"count": 1, "sku": "a"})]),
    (models, [call(ITEM, None), call(ITEM, point=Point(1.0, 0.0)), call(ITEM, None, Point(1.0))]),
    (models, [call(ITEM, Line("s", {1: "x", 2: "y"})), call(ITEM, Line("s", {2: "y", 1: "x"}))]),
]  # fmt: skip


@pytest.mark.parametrize(("task", "calls"), SAME)
async def test_equal_calls_are_one_task_however_arguments_are_passed(crew: Crew, task: Any, calls: list[Call]) -> None:
    first, *rest = [task.push(*args, **kwargs) for args, kwargs in calls]
    assert {receipt.id for receipt in rest} == {first.id}
    assert (first.duplicate, {receipt.duplicate for receipt in rest}) == (False, {True})
    assert crew.count("submitted") == 1


OTHER: list[tuple[Any, list[Call]]] = [
    (charge, [call("ann"), call("bob"), call("ann", 101), call("ann", currency="USD"), call("100"), call("ann EUR")]),
    (anything, [call(1), call("1"), call(True), call(1.0), call([1]), call((1,)), call({1}), call(Decimal(1))]),
    (anything, [call({1: "a"}), call({"1": "a"}), call([[1, "a"]])]),
    (anything, [call(), call(None), call(None, None), call([]), call({})]),
    (anything, [call(1, 2), call([1, 2]), call(2, 1), call(a=1, b=2)]),
    (models, [call(Item(sku="a")), call(Item(sku="b")), call(Item(sku="a", count=2)), call(Item(sku="a"), Line("s"))]),
]  # fmt: skip


@pytest.mark.parametrize(("task", "calls"), OTHER)
async def test_different_calls_are_different_tasks(crew: Crew, task: Any, calls: list[Call]) -> None:
    receipts = [task.push(*args, **kwargs) for args, kwargs in calls]
    assert len({receipt.id for receipt in receipts}) == len(calls)


async def test_arguments_that_cannot_be_encoded_are_refused_before_any_key(crew: Crew) -> None:
    with pytest.raises(PayloadEncodingError, match="cannot be encoded"):
        anything.push(object())
    with pytest.raises(TypeError, match="missing a required argument: 'customer'"):
        charge.push()


async def test_functions_of_one_name_in_two_modules_have_separate_keys(crew: Crew) -> None:
    assert shop.where.name != store.where.name
    async with crew.working():
        receipts = [await module.where.apush(1) for module in (shop, store, shop)]
        assert [await receipt.result(10) for receipt in receipts] == ["shop 1", "store 1", "shop 1"]
    assert crew.count("submitted") == 2


# --- keys of one's own -------------------------------------------------------------------------------------------


@rl_task(idempotency_key="order:{order[id]}")
def ship(order: dict[str, Any], fast: bool = False) -> str:
    return "shipped"


@rl_task(idempotency_key=lambda order, **_: f"{order['id']}")
def pack(order: dict[str, Any], fast: bool = False) -> str:
    return "packed"


@pytest.mark.parametrize("task", [ship, pack])
async def test_a_template_or_a_function_makes_the_key(crew: Crew, task: Any) -> None:
    first = task.push({"id": 7, "note": "a"})
    assert task.push({"id": 7, "note": "b"}, fast=True).id == first.id
    assert task.push({"id": 8}).id != first.id


async def test_a_key_belongs_to_its_task(crew: Crew) -> None:
    receipts = [ship.push({"id": 7}), pack.push({"id": 7})]
    receipts += [task.with_options(idempotency_key="k").push({"id": 1}) for task in (ship, pack)]
    assert len({receipt.id for receipt in receipts}) == 4
    assert ship.with_options(idempotency_key="k").push({"id": 2}).id == receipts[2].id


async def test_a_push_may_bring_its_own_key(crew: Crew) -> None:
    @rl_task
    def free(n: int) -> None: ...

    keyed = free.with_options(idempotency_key="today")
    assert keyed.push(1).id == keyed.push(2).id
    assert free.push(1).id != free.push(1).id
    for key in ("", 5, b"k", ["k"]):
        with pytest.raises(InvalidSubmissionError, match="key"):
            free.with_options(idempotency_key=key).push(1)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="are for one task"):
        keyed.push_many([(1,)])


@pytest.mark.parametrize("key", ["x" * 10_000, "a\nb", "\0", "ä ö", "{}"])
async def test_any_text_is_a_key(crew: Crew, key: str) -> None:
    @rl_task(idempotency_key="{key}")
    def keyed(key: str) -> None: ...

    first = keyed.push(key)
    assert keyed.push(key).id == first.id
    assert keyed.push(key + "!").id != first.id
    stored = crew.command("KEYS", f"{crew.ledger.prefix}i:*")
    assert len(stored) == 2
    assert max(map(len, stored)) < 150, "a long key is stored as its digest"


@pytest.mark.parametrize("made", [None, 5, b"k", "", "\ud800"])
async def test_a_function_that_returns_no_key_is_refused(crew: Crew, made: Any) -> None:
    @rl_task(idempotency_key=lambda: made)
    def keyed() -> None: ...

    with pytest.raises(InvalidSubmissionError, match="key"):
        keyed.push()
    assert crew.count("submitted") == 0


async def test_a_key_function_that_raises_fails_the_push(crew: Crew) -> None:
    @rl_task(idempotency_key=lambda order: order["id"])
    def keyed(order: dict[str, str]) -> None: ...

    with pytest.raises(KeyError):
        keyed.push({})


@pytest.mark.parametrize("key", ["{nobody}", "{}", "{order", "", 5, b"k"])
async def test_an_invalid_key_is_refused_at_definition(key: Any) -> None:
    def keyed(order: str) -> None: ...

    with pytest.raises(ConfigurationError, match="idempotency_key"):
        rl_task(idempotency_key=key)(keyed)


async def test_an_async_key_function_is_refused() -> None:
    async def make(order: str) -> str:
        return order

    def keyed(order: str) -> None: ...

    with pytest.raises(ConfigurationError, match=r"idempotency_key .* cannot await"):
        rl_task(idempotency_key=make)(keyed)


async def test_templates_do_not_resolve_annotations_too_early(crew: Crew) -> None:
    """Templates are checked when the task is defined, but its annotations may name classes that are defined later."""
    space: dict[str, Any] = {"__name__": __name__}
    exec(inspect.cleandoc(FORWARD), space)
    first = space["send"].push(space["Parcel"](id=1))
    assert space["send"].push(space["Parcel"](id=1, note="n")).id == first.id


FORWARD = """
from __future__ import annotations
import dataclasses
from relier import rl_task

@rl_task(idempotency_key="{parcel.id}")
def send(parcel: Parcel) -> None: ...

@dataclasses.dataclass
class Parcel:
    id: int
    note: str = ""
"""


# --- for how long ------------------------------------------------------------------------------------------------


@rl_task(idempotent=True, idempotency_ttl=60)
def minute(n: int) -> int:
    return n


async def test_a_key_lives_with_its_task_and_then_for_its_ttl(clocked: Crew) -> None:
    first = minute.push(1)
    clocked.advance(100 * 86_400)
    assert minute.push(1).id == first.id, "as long as the task lives, however long that is"
    clocked.commit(clocked.start())
    clocked.advance(59.999)
    duplicate = minute.push(1)
    assert (duplicate.id, duplicate.duplicate, duplicate.result(0)) == (first.id, True, 1)
    clocked.advance(0.001)
    assert minute.push(1).id != first.id


async def test_with_a_ttl_of_zero_the_key_is_held_while_the_task_lives(clocked: Crew) -> None:
    @rl_task(idempotent=True, idempotency_ttl=0)
    def once(n: int) -> None: ...

    first = once.push(1)
    assert once.push(1).id == first.id
    clocked.commit(clocked.start())
    assert once.push(1).id != first.id


@pytest.mark.parametrize("ttl", [-1, -0.001, NAN, float("inf"), "60", True])
async def test_an_invalid_ttl_is_refused_at_definition(ttl: Any) -> None:
    with pytest.raises((ConfigurationError, InvalidSubmissionError), match="idempotency_ttl"):
        TaskOptions("t", idempotent=True, idempotency_ttl=ttl)


async def test_the_result_is_there_as_long_as_the_key(clocked: Crew) -> None:
    @rl_task(idempotent=True, idempotency_ttl=7200, result_ttl=1)
    def kept(n: int) -> int:
        return n

    first = kept.push(1)
    clocked.commit(clocked.start(), b"5")
    clocked.advance(7199)
    clocked.run(clocked.ledger.reap())
    assert kept.push(1).result(0) == 5
    assert kept.push(1).id == first.id


# --- what a second push gets -------------------------------------------------------------------------------------


async def test_a_second_push_gets_the_receipt_and_the_result_of_the_first(crew: Crew) -> None:
    async with crew.working():
        first = await charge.apush("ann")
        assert await first.result(10) == "ann 100 EUR"
        second = await charge.apush("ann")
        assert (second.id, second.duplicate) == (first.id, True)
        assert await second.result(0) == "ann 100 EUR"
    assert crew.count("done") == 1


@rl_task(idempotent=True, on_duplicate="raise")
def strict(n: int) -> int:
    return n


async def test_on_duplicate_raise_names_the_first_task(crew: Crew) -> None:
    first = strict.push(1)
    with pytest.raises(TaskInFlightError, match=rf"{first.id} .* is queued; nothing was pushed") as caught:
        strict.push(1)
    assert caught.value.task_id == first.id
    crew.commit(crew.start())
    with pytest.raises(DuplicateTaskError, match=r"is already done; nothing was pushed") as done:
        await strict.apush(1)
    assert done.value.task_id == first.id
    assert crew.count("submitted") == 1


@rl_task
def pushes_strict(n: int) -> None:
    runs.append(n)
    strict.push(n)


runs: list[int] = []


async def test_a_task_that_raises_task_in_flight_error_fails_and_is_not_put_back(crew: Crew) -> None:
    """Its body has run, and would run again and again."""
    first = pushes_strict.with_options(priority=1).push(1)
    strict.push(1)
    outcome = await crew.execute(crew.begin())
    assert isinstance(outcome, Failed)
    assert isinstance(failure_of(outcome.error).rebuild(), TaskInFlightError), "also from an isolated process"
    record = crew.get(first.id).record
    assert (record.state, record.reason, runs) == (State.DEAD, "TaskInFlightError", [1])


async def test_in_a_bulk_the_error_names_the_tasks_that_were_pushed(crew: Crew) -> None:
    first = strict.push(3)
    with pytest.raises(PartialPushError, match="249 of 250 tasks were accepted") as caught:
        strict.push_many([(n,) for n in range(250)])
    outcomes = list(caught.value.outcomes.values())
    assert [n for n, error in enumerate(outcomes) if error is not None] == [3]
    assert isinstance(outcomes[3], TaskInFlightError)
    assert outcomes[3].task_id == first.id
    with pytest.raises(IdempotencyInFlightError):
        await strict.apush_many([(n,) for n in range(5)])
    assert crew.count("submitted") == 250


async def test_equal_calls_in_one_bulk_are_one_task(crew: Crew) -> None:
    receipts = charge.push_many([("ann",), ("bob",), {"customer": "ann"}])
    assert receipts[0].id == receipts[2].id != receipts[1].id
    assert [receipt.duplicate for receipt in receipts] == [False, False, True]
    with pytest.raises(PartialPushError):
        strict.push_many([(1,), (1,), (2,)])
    assert crew.count("submitted") == 4


@rl_task(idempotency_key="{tenant}", on_duplicate="replace")
def latest(tenant: str, version: int) -> int:
    return version


@pytest.mark.parametrize("delay", [0, 3600])
async def test_on_duplicate_replace_replaces_a_waiting_task(crew: Crew, delay: int) -> None:
    first = latest.with_options(delay=delay).push("a", 1)
    second = latest.push("a", 2)
    assert (second.id != first.id, second.duplicate) == (True, False)
    assert first.state() is TaskState.CANCELLED
    with pytest.raises(TaskCancelledError, match="replaced"):
        first.result(1)
    lease = crew.start()
    assert lease.task_id == second.id
    third = latest.push("a", 3)
    assert (third.id, third.duplicate) == (second.id, True), "one that runs is left alone"


@pytest.mark.parametrize("policy", ["ignore", "", None, 5])
async def test_an_unknown_policy_is_refused(policy: Any) -> None:
    with pytest.raises(ConfigurationError, match="on_duplicate must be return, raise or replace"):
        TaskOptions("t", on_duplicate=policy)


# --- who frees the key -------------------------------------------------------------------------------------------


@rl_task(idempotent=True, max_resurrections=0)
async def fragile(how: str) -> str:
    if how == "fail":
        raise ValueError("it failed")
    if how == "wait":
        await asyncio.sleep(60)
    return how


async def ended(crew: Crew, task_id: str) -> Task:
    await until(lambda: crew.get(task_id).record.state in {State.DEAD, State.CANCELLED})
    return crew.get(task_id)


async def test_a_failure_frees_the_key(crew: Crew) -> None:
    async with crew.working():
        first = await fragile.apush("fail")
        with pytest.raises(ValueError, match="it failed"):
            await first.result(10)
        assert (await fragile.apush("fail")).id != first.id


async def test_a_retry_keeps_the_key(crew: Crew) -> None:
    @rl_task(idempotent=True, retries=Retries(attempts=1, backoff=0.3, jitter=0))
    async def flaky(ctx: TaskContext) -> int:
        if ctx.attempt == 1:
            raise ValueError
        return ctx.attempt

    async with crew.working():
        first = await flaky.apush()
        await until(lambda: crew.get(first.id).record.state is State.SCHEDULED)
        assert (await flaky.apush()).id == first.id
        assert await first.result(10) == 2


async def test_too_many_deaths_free_the_key(crew: Crew) -> None:
    first = fragile.push("ok")
    boot = crew.join()
    crew.start(boot)
    crew.lose(boot)
    assert crew.get(first.id).record.reason == "max_resurrections_exceeded"
    assert fragile.push("ok").id != first.id


async def test_a_revival_keeps_the_key(crew: Crew) -> None:
    first = charge.push("ann")
    boot = crew.join()
    crew.start(boot)
    crew.lose(boot)
    assert charge.push("ann").id == first.id


async def test_cancelling_a_waiting_task_frees_the_key(crew: Crew) -> None:
    first = charge.push("ann")
    assert first.cancel()
    assert charge.push("ann").id != first.id


async def test_cancelling_a_running_task_frees_the_key_when_its_worker_answers(crew: Crew) -> None:
    async with crew.working():
        first = await fragile.apush("wait")
        await until(lambda: crew.get(first.id).record.state is State.RUNNING)
        assert await first.cancel()
        asked = await fragile.apush("wait")
        if crew.get(first.id).record.state is State.RUNNING:
            assert asked.id == first.id, "it is only asked to end"
        await ended(crew, first.id)
        second = await fragile.apush("wait")
        assert second.id not in {first.id}
        await second.cancel()
        await ended(crew, second.id)


async def test_expiry_frees_the_key(clocked: Crew) -> None:
    first = charge.with_options(expires=5).push("ann")
    clocked.advance(5)
    boot = clocked.join()
    assert clocked.run(clocked.ledger.claim(boot, 1, ["default"], 1)).tasks == ()
    assert first.state() is TaskState.CANCELLED
    assert charge.push("ann").id != first.id


@pytest.mark.parametrize("on_lost", ["bury", "hold"])
async def test_a_lost_task_that_is_not_retried_keeps_the_key(crew: Crew, on_lost: Any) -> None:
    @rl_task(idempotent=True, on_lost=on_lost)
    def pay(n: int) -> None: ...

    first = pay.push(1)
    boot = crew.join()
    crew.start(boot)
    crew.lose(boot)
    assert crew.get(first.id).record.reason == "lost"
    again = pay.push(1)
    assert (again.id, again.duplicate) == (first.id, True), "it may have had its effect"
    crew.run(crew.ledger.discard(first.id, crew.get(first.id).record.version))
    assert pay.push(1).id != first.id


async def test_a_replay_takes_the_key_again_or_is_refused(crew: Crew) -> None:
    from relier.errors import IdempotencyConflictError

    async with crew.working():
        first = await fragile.apush("fail")
        await ended(crew, first.id)
        await first.replay()
        await until(lambda: crew.get(first.id).record.state is State.DEAD)
    second = fragile.push("fail")
    with pytest.raises(IdempotencyConflictError, match="another task holds the idempotency key now"):
        await first.replay()
    second.cancel()
    await first.replay()
    assert fragile.push("fail").id == first.id


# --- at once -----------------------------------------------------------------------------------------------------


async def test_fifty_concurrent_pushes_run_once(crew: Crew) -> None:
    ran: list[str] = []

    @rl_task(idempotent=True)
    async def once(order: dict[str, Any]) -> str:
        ran.append(task_id := order["id"])
        return f"did {task_id}"

    by_threads: list[str] = []

    def push() -> None:
        by_threads.append(once.push({"id": "a", "lines": [1, 2]}).id)

    async with crew.working():
        threads = [threading.Thread(target=push) for _ in range(10)]
        for thread in threads:
            thread.start()
        receipts = await asyncio.gather(*(once.apush({"lines": [1, 2], "id": "a"}) for _ in range(50)))
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert len({receipt.id for receipt in receipts} | set(by_threads)) == 1
        assert {await receipt.result(10) for receipt in receipts} == {"did a"}
    assert ran == ["a"]
    assert (crew.count("submitted"), crew.count("done")) == (1, 1)
