"""Chains, groups and batches on a real embedded store, run by run_pending."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from relier import (
    BatchClosedError,
    BatchNotFoundError,
    ConfigurationError,
    InvalidSubmissionError,
    Limit,
    OpenBatch,
    Retries,
    TaskContext,
    TaskState,
    WorkflowCancelledError,
    WorkflowFailedError,
    batch,
    chain,
    group,
    rl_task,
)
from relier.ledger.batches.records import Stage
from relier.testing import VirtualStore, arun_pending, inline, kill_before_commit, recorded, run_pending
from relier.workflows.receipt import SyncWorkflowReceipt
from tests.support.keyrings import keys_setting

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh(relier_store: VirtualStore) -> None:
    ran.clear()


class Order(BaseModel):
    id: int
    total: int = 0


@rl_task(name="wf.add")
def add(x: int, y: int) -> int:
    ran.append(("add", x, y))
    return x + y


@rl_task(name="wf.total")
async def total(numbers: list[int]) -> int:
    ran.append(("total", numbers))
    return sum(numbers)


@rl_task(name="wf.order")
def order(number: int) -> Order:
    return Order(id=number)


@rl_task(name="wf.price")
def price(bought: Order, each: int = 5) -> Order:
    assert isinstance(bought, Order)
    return Order(id=bought.id, total=each)


@rl_task(name="wf.fail")
def fail(*args: Any) -> None:
    ran.append("fail")
    raise ValueError("no stock")


@rl_task(name="wf.note")
def note(word: str) -> str:
    ran.append(word)
    return word


@rl_task(name="wf.nothing")
def nothing(value: Any) -> None:
    ran.append(value)


@rl_task(name="wf.grow", retries=Retries(attempts=1, backoff=0))
async def grow(ctx: TaskContext, n: int) -> int:
    assert ctx.batch is not None
    for i in range(n):
        await ctx.batch.aadd(note.s(f"grown {i}"))
    if ctx.metadata["retries"] == 0:
        raise ConnectionError("after it has added")
    return n


def test_a_chain_passes_results_on(relier_store: VirtualStore) -> None:
    receipt = chain(add.s(1, 2), add.s(10), add.si(4, 4), add.s(1)).push()
    relier_store.run_pending()
    assert receipt.result(1) == 9
    assert ran == [("add", 1, 2), ("add", 3, 10), ("add", 4, 4), ("add", 8, 1)]
    progress = receipt.progress()
    assert (progress.done, progress.total, progress.ended, progress.succeeded) == (4, 4, True, True)


def test_models_are_passed_on_as_models(relier_store: VirtualStore) -> None:
    receipt = chain(order.s(7), price.s(), price.s(each=9)).push()
    relier_store.run_pending()
    assert receipt.result(1) == Order(id=7, total=9)
    assert SyncWorkflowReceipt[Any](receipt.id).result(1) == {"id": 7, "total": 9}


def test_a_result_of_none_is_none(relier_store: VirtualStore) -> None:
    receipt = chain(nothing.s("first"), nothing.s()).push()
    relier_store.run_pending()
    assert receipt.result(1) is None
    assert ran == ["first", None]


def test_a_group_inside_a_chain_joins(relier_store: VirtualStore) -> None:
    receipt = chain(add.s(1, 1), group(add.s(n) for n in range(3)), total.s(), add.s(100)).push()
    relier_store.run_pending()
    assert receipt.result(1) == 109
    assert ("total", [2, 3, 4]) in ran


def test_two_groups_may_follow_each_other(relier_store: VirtualStore) -> None:
    receipt = chain(group(add.s(1, 1), add.s(2, 2)), group(total.s(), total.s()), total.s()).push()
    relier_store.run_pending()
    assert receipt.result(1) == 12


def test_groups_and_chains_nest(relier_store: VirtualStore) -> None:
    inner = group(chain(add.s(1, 1), add.s(1)), group(add.s(5, 5), add.s(6, 6)))
    receipt = group(inner, add.s(7, 7)).push()
    relier_store.run_pending()
    assert receipt.result(1) == [[3, [10, 12]], 14]
    assert receipt.progress().total == 5


def test_a_batch_counts_and_calls_back(relier_store: VirtualStore) -> None:
    receipt = batch(
        [note.s(f"m{n}") for n in range(3)],
        then=note.si("then"),
        on_failure=note.si("failed"),
        on_complete=chain(note.si("complete"), note.si("after")),
    ).push()
    relier_store.run_pending()
    assert receipt.result(1) is None
    assert sorted(ran) == ["after", "complete", "m0", "m1", "m2", "then"]


def test_a_batch_that_collects_hands_its_results_to_then(relier_store: VirtualStore) -> None:
    receipt = batch([add.s(n, n) for n in range(4)], then=total.s(), collect=True).push()
    relier_store.run_pending()
    assert receipt.result(1) == [0, 2, 4, 6]
    assert ("total", [0, 2, 4, 6]) in ran


def test_a_failure_names_the_task_and_calls_back_once(relier_store: VirtualStore) -> None:
    receipt = batch(
        [fail.s(), fail.s(), note.s("fine")],
        then=note.si("then"),
        on_failure=note.si("failed"),
        on_complete=note.si("complete"),
    ).push()
    relier_store.run_pending()
    assert sorted(map(str, ran)) == ["complete", "fail", "fail", "failed", "fine"]
    with pytest.raises(WorkflowFailedError, match=r"wf\.fail") as caught:
        receipt.result(1)
    dead = [member.id for member in receipt.members(Stage.DEAD)]
    assert caught.value.task_id in dead
    assert isinstance(caught.value.__cause__, ValueError)
    assert receipt.progress().failed == 2


def test_a_broken_chain_continues_after_a_replay(relier_store: VirtualStore) -> None:
    broken = chain(note.s("a"), fail.s(), note.si("c"))
    receipt = batch([broken], then=note.si("then")).push()
    relier_store.run_pending()
    with pytest.raises(WorkflowFailedError) as caught:
        receipt.result(1)
    assert "c" not in ran
    original, fail.fn = fail.fn, lambda *args: ran.append(args)
    try:
        fail.sync_receipt(caught.value.task_id).replay()
        relier_store.run_pending()
    finally:
        fail.fn = original
    assert ran[-3:] == [("a",), "c", "then"]
    assert receipt.result(1) is None


def test_cancel_stops_everything_that_waits(relier_store: VirtualStore) -> None:
    later = note.with_options(delay=3600)
    inner = group(later.s("x"), later.s("y"))
    receipt = batch([later.s("a"), chain(note.s("b"), later.si("c")), inner], on_complete=note.si("complete")).push()
    relier_store.run_pending(within=1)
    assert ran == ["b"]
    assert receipt.cancel()
    relier_store.run_pending()
    assert ran == ["b", "complete"]
    assert not receipt.cancel()
    with pytest.raises(WorkflowCancelledError):
        receipt.result(1)


def test_a_member_adds_to_its_own_batch_once_whatever_happens_to_it(relier_store: VirtualStore) -> None:
    receipt = batch([grow.s(3)], then=note.si("then")).push()
    relier_store.run_pending()
    assert sorted(ran) == ["grown 0", "grown 1", "grown 2", "then"]
    assert (receipt.progress().done, receipt.progress().total) == (4, 4)


def test_an_open_batch_is_filled_piece_by_piece(relier_store: VirtualStore) -> None:
    with batch(then=total.s(), collect=True).open() as filling:
        for n in range(3):
            filling.add(add.s(n, 0))
        filling.add(chain(add.s(1, 1), add.s(1)), add.s(9, 0))
        relier_store.run_pending()
        assert ("total", [0, 1, 2, 3, 9]) not in ran
        assert filling.extend()
    relier_store.run_pending()
    assert ran[-1] == ("total", [0, 1, 2, 3, 9])
    with pytest.raises(BatchClosedError):
        filling.add(note.s("late"))
    assert not filling.extend()


def _fill_and_fail(filling: OpenBatch) -> None:
    filling.add(note.s("in"))
    raise ZeroDivisionError


def _be_silent(filling: OpenBatch, store: VirtualStore) -> None:
    filling.add(note.s("in"))
    store.run_pending()
    store.advance(60)
    store.run_pending()


def test_a_producer_that_fails_abandons_its_batch(relier_store: VirtualStore) -> None:
    made = batch(then=note.si("then"), on_failure=note.si("failed"), on_complete=note.si("complete"))
    filling = made.open()
    with pytest.raises(ZeroDivisionError), filling:
        _fill_and_fail(filling)
    relier_store.run_pending()
    assert sorted(ran) == ["complete", "failed", "in"]
    with pytest.raises(WorkflowFailedError, match="abandoned"):
        filling.sync_receipt.result(1)


def test_a_producer_that_does_not_extend_the_lease_loses_its_batch(relier_store: VirtualStore) -> None:
    made = batch(then=note.si("then"), on_failure=note.si("failed"), lease=10)
    filling = made.open()
    with pytest.raises(BatchClosedError, match="longer lease"), filling:
        _be_silent(filling, relier_store)
    assert ran == ["in", "failed"]


def test_a_workflow_with_an_id_is_pushed_once(relier_store: VirtualStore) -> None:
    made = chain(note.s("a"), group(note.si("b"), note.si("c")))
    first, second = made.push(id="report-7"), made.push(id="report-7")
    assert (first.id, first.duplicate, second.duplicate) == ("report-7", False, True)
    relier_store.run_pending()
    assert not ran.count("a") > 1
    assert made.push(id="report-7").duplicate
    assert second.result(1) == ["b", "c"]


def test_a_large_group_is_pushed_in_pieces(relier_store: VirtualStore) -> None:
    receipt = chain(group(add.s(n, 0) for n in range(250)), total.s()).push()
    relier_store.run_pending()
    assert receipt.result(1) == sum(range(250))
    assert receipt.progress().total == 251


def test_an_empty_batch_is_complete(relier_store: VirtualStore) -> None:
    receipt = batch([], then=note.si("then")).push()
    relier_store.run_pending()
    assert ran == ["then"]
    assert receipt.progress().succeeded


def test_a_killed_worker_runs_each_callback_once(relier_store: VirtualStore) -> None:
    receipt = batch([note.s("a")], then=note.si("then")).push()
    relier_store.run_pending(kill_before_commit())
    assert ran.count("then") in {1, 2}, "each callback enters once; an attempt may run twice"
    assert receipt.result(1) is None


def test_encrypted_results_pass_too() -> None:
    keys = {"signing_keys": keys_setting("s"), "encryption_keys": keys_setting("e")}
    with VirtualStore(**keys) as store:
        receipt = chain(add.s(1, 2), group(add.s(1), add.s(2)), total.s()).push()
        store.run_pending()
        assert receipt.result(1) == 9


def test_mistakes_are_found_where_they_are_written(relier_store: VirtualStore) -> None:
    with pytest.raises(TypeError, match="add"):
        add.s(1, 2, 3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="note"):
        note.si()
    with pytest.raises(TypeError, match="add"):
        chain(add.s(1, 2), add.s(1, 2))
    with pytest.raises(TypeError, match="add"):
        chain(add.s(1)).push()
    with pytest.raises(ConfigurationError, match="signatures"):
        chain(add)  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="apush\\(id"):
        note.with_options(idempotency_key="k").s("x")
    with pytest.raises(BatchNotFoundError):
        SyncWorkflowReceipt[Any]("nothing").progress()


def test_a_task_outside_a_workflow_has_no_batch(relier_store: VirtualStore) -> None:
    receipt = grow.push(0)
    relier_store.run_pending()
    assert receipt.state() is TaskState.DEAD


@pytest.mark.anyio
async def test_async_callers_can_push_fill_and_read_workflows(relier_store: VirtualStore) -> None:
    receipt = await chain(add.s(1, 2), group(add.s(1), add.s(2)), total.s()).apush()
    async with batch(then=note.si("then")).open() as filling:
        await filling.aadd(note.s("in"))
        assert await filling.aextend()
    await arun_pending()
    assert await receipt.result(1) == 9
    assert (await filling.receipt.progress()).done == 1
    assert [member.stage async for member in receipt.members()] == [Stage.DONE] * 3
    assert not await receipt.cancel()
    assert ran[-1] == "then" or "then" in ran


@pytest.mark.parametrize("kit", [recorded, inline])
def test_a_workflow_needs_a_store(kit: Any) -> None:
    with kit(), pytest.raises(ConfigurationError, match="relier_store"):
        chain(note.s("a"), note.si("b")).push()


@rl_task(name="wf.sync", limits=Limit(concurrency=1, per="tenant:{tenant}"))
def sync(number: int, tenant: str = "acme") -> int:
    return number


@rl_task(name="wf.limited_by_input", limits=Limit(concurrency=1, per="number:{number}"))
def limited_by_input(number: int) -> int:
    return number


def test_members_keep_the_limits_of_their_tasks(relier_store: VirtualStore) -> None:
    receipt = group(*(sync.s(n) for n in range(3))).push()
    page = relier_store.client.run(relier_store.client.ledger.limits())
    assert [(key.key, key.live) for key in page.keys] == [("tenant:acme", 3)]
    run_pending()
    assert receipt.result(timeout=1) == [0, 1, 2]


def test_a_later_link_keeps_its_limits(relier_store: VirtualStore) -> None:
    receipt = chain(add.s(1, 2), sync.s(tenant="tiny")).push()
    run_pending()
    assert receipt.result(timeout=1) == 3


def test_a_limit_cannot_depend_on_a_result_that_is_not_known_yet() -> None:
    with pytest.raises(InvalidSubmissionError, match="the result of the task before it, which is not known"):
        chain(add.s(1, 2), limited_by_input.s()).push()


def test_groups_nest_ten_deep_and_no_deeper(relier_store: VirtualStore) -> None:
    nested: Any = add.s(1, 2)
    for _ in range(10):
        nested = group(nested)
    receipt = nested.push()
    run_pending()
    result = receipt.result(timeout=1)
    for _ in range(10):
        (result,) = result
    assert result == 3
    with pytest.raises(InvalidSubmissionError, match="nested at most 10 levels deep"):
        group(nested).push()
