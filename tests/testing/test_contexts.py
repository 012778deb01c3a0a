"""A context made by a test: a task's function is called with it, without any store."""

from __future__ import annotations

import pytest

from relier import LeaseLostError, NotAwaitedError, TaskContext, rl_task, task_context
from relier.testing import FakeClock, context

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIER_REDIS_URL", "redis://127.0.0.1:1")


def draw(order: int) -> str:
    return f"tx-{order}"


@rl_task(name="ctx.fulfil")
async def fulfil(ctx: TaskContext, order: int) -> str:
    paid = await ctx.step("charge", draw, order)
    await ctx.set_partial({"order": order})
    ctx.progress(1, 2, "charged")
    ctx.progress(1.5, 2, "dropped: less than a second later")
    sent = await ctx.step("mail", str.upper, paid)
    ctx.progress(2, 2)
    return sent


@rl_task(name="ctx.plain")
def plain(ctx: TaskContext, order: int) -> str:
    return ctx.step_sync("charge", draw, order)


async def test_a_task_is_called_with_a_context_and_what_it_recorded_can_be_read() -> None:
    ctx = context(fulfil, task_id="t1", attempt=2, fence=7, queue="slow", retries=1, deaths=3)
    assert await fulfil.fn(ctx, 42) == "TX-42"
    assert ctx.recorded.steps == {"charge": "tx-42", "mail": "TX-42"}
    assert ctx.recorded.checkpoint == {"order": 42}
    assert ctx.recorded.progress == ["1 of 2: charged", "2 of 2"]
    assert (ctx.task_id, ctx.task_name, ctx.attempt, ctx.fence) == ("t1", "ctx.fulfil", 2, 7)
    assert (ctx.metadata["queue"], ctx.metadata["retries"], ctx.metadata["deaths"]) == ("slow", 1, 3)


async def test_steps_of_earlier_attempts_do_not_run_again() -> None:
    ctx = context(steps={"mail": "SENT", "charge": "tx-0"}, checkpoint=[1, 2])
    assert ctx.partial_result == [1, 2]
    assert await fulfil.fn(ctx, 42) == "SENT"
    assert ctx.recorded.steps == {}


async def test_a_direct_call_and_task_context_find_the_context_that_was_entered() -> None:
    async with context(state={"http": "fake"}) as ctx:
        assert await fulfil(42) == "TX-42"
        assert task_context() is ctx
        assert task_context.state == {"http": "fake"}
    assert ctx.recorded.steps.keys() == {"charge", "mail"}
    with pytest.raises(TypeError, match="needs its context"):
        await fulfil(42)


def test_a_plain_function_needs_no_event_loop() -> None:
    with context() as ctx:
        assert plain(7) == "tx-7"
    assert ctx.recorded.steps == {"charge": "tx-7"}


def test_one_context_may_be_entered_inside_another() -> None:
    with context(task_id="outer"), context(task_id="inner"):
        assert task_context.task_id == "inner"
    with context(task_id="outer"):
        with context(task_id="inner"):
            pass
        assert task_context.task_id == "outer"


async def test_a_lost_attempt_records_nothing_more() -> None:
    ctx = context()

    def lose() -> str:
        ctx.lose()
        return "done by a zombie"

    with pytest.raises(LeaseLostError, match="the ledger refused its write"):
        await ctx.step("last", lose)
    with pytest.raises(LeaseLostError):
        await ctx.step("next", draw, 1)
    with pytest.raises(LeaseLostError):
        ctx.guard()
    assert ctx.recorded.steps == {}


async def test_the_fake_clock_is_the_one_that_the_context_measures_with() -> None:
    clock = FakeClock(100.0)
    ctx = context(trusted_for=4.0, clock=clock)
    ctx.guard()
    ctx.progress(1)
    ctx.progress(2)
    clock.advance(1.0)
    ctx.progress(3)
    assert ctx.recorded.progress == ["1", "3"]
    clock.advance(3.5)
    assert ctx.suspect
    with pytest.raises(LeaseLostError, match="may be lost"):
        ctx.guard()


async def test_a_step_that_was_not_awaited_is_reported_as_a_worker_would() -> None:
    with pytest.raises(NotAwaitedError, match="step"):
        async with context() as ctx:
            ctx.step("forgotten", draw, 1)  # type: ignore[unused-coroutine]
