"""Middleware around the code of tasks: order, context, results, errors, isolated processes."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from relier import ConfigurationError, Depends, TaskContext, rl_task, use_middleware
from relier.run.outcome import Done, Failed
from tests.support.crew import Crew

pytestmark = pytest.mark.anyio
seen: list[str] = []
tenant: ContextVar[str] = ContextVar("tenant", default="")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    seen.clear()


async def outer(call_next: Any, ctx: TaskContext) -> Any:
    seen.append(f"outer of {ctx.task_name} {ctx.args}")
    tenant.set("acme")
    try:
        return await call_next(ctx)
    except Exception as error:
        seen.append(f"outer saw {error!r}")
        raise
    finally:
        seen.append("outer ends")


async def inner(call_next: Any, ctx: TaskContext) -> Any:
    seen.append("inner")
    return f"<{await call_next(ctx)}>"


def get_tenant() -> str:
    return f"tenant {tenant.get()}"


@rl_task(name="mw.async", middleware=[inner])
async def greet(name: str, who: str = Depends(get_tenant)) -> str:
    seen.append("body")
    return f"{name} of {who}"


@rl_task(name="mw.thread", middleware=[inner])
def greet_in_thread(name: str) -> str:
    return f"{name} of {tenant.get()}"


@rl_task(name="mw.fails")
async def fails() -> None:
    raise ValueError("no")


async def test_middleware_wraps_a_task_in_order_and_may_change_its_result(crew: Crew) -> None:
    use_middleware(run=[outer])
    use_middleware(run=[outer])  # as when a module is imported twice
    greet.push("Ada")
    outcome = await crew.execute(crew.begin())
    assert isinstance(outcome, Done)
    assert outcome.result == b'"<Ada of tenant acme>"'
    assert seen == ["outer of mw.async ('Ada',)", "inner", "body", "outer ends"]


async def test_a_def_in_its_thread_sees_the_context_variables(crew: Crew) -> None:
    use_middleware(run=[outer])
    greet_in_thread.push("Ada")
    outcome = await crew.execute(crew.begin())
    assert isinstance(outcome, Done)
    assert outcome.result == b'"<Ada of acme>"'


async def test_middleware_sees_the_error_of_the_task(crew: Crew) -> None:
    use_middleware(run=[outer])
    fails.push()
    outcome = await crew.execute(crew.begin())
    assert isinstance(outcome, Failed)
    assert repr(outcome.error) == "ValueError('no')"
    assert seen[1:] == ["outer saw ValueError('no')", "outer ends"]


async def test_an_error_of_a_middleware_fails_the_attempt(crew: Crew) -> None:
    async def broken(call_next: Any, ctx: TaskContext) -> Any:
        raise OSError("the tracer is unreachable")

    use_middleware(run=[broken])
    greet.push("Ada")
    outcome = await crew.execute(crew.begin())
    assert isinstance(outcome, Failed)
    assert "tracer" in str(outcome.error)
    assert seen == []


async def test_call_next_accepts_only_the_same_context(crew: Crew) -> None:
    async def forgetful(call_next: Any, ctx: TaskContext) -> Any:
        return await call_next(None)

    use_middleware(run=[forgetful])
    greet.push("Ada")
    outcome = await crew.execute(crew.begin())
    assert isinstance(outcome, Failed)
    assert "passed None to call_next; pass the ctx that it got" in str(outcome.error)


def test_middleware_must_be_an_async_function() -> None:
    class Counted:
        async def __call__(self, call_next: Any, ctx: TaskContext) -> Any:
            return await call_next(ctx)

    use_middleware(run=[Counted()])
    with pytest.raises(ConfigurationError, match="run middleware must be an async function"):
        use_middleware(run=[lambda call_next, ctx: None])  # type: ignore[arg-type, return-value, list-item]
    with pytest.raises(ConfigurationError, match="takes a list of functions"):
        use_middleware(push=outer)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"task mw\.wrong: push_middleware must be an async function"):
        rl_task(name="mw.wrong", push_middleware=[print])(lambda: None)  # type: ignore[list-item]


@rl_task(name="mw.plans")
async def plans(ctx: TaskContext) -> None:
    seen.append(asyncio.get_running_loop().create_task(ctx.step("late", seen.append, "the step ran")))  # type: ignore[arg-type]


async def test_a_step_that_was_only_planned_does_not_start_in_middleware(crew: Crew) -> None:
    async def lingers(call_next: Any, ctx: TaskContext) -> Any:
        try:
            return await call_next(ctx)
        finally:
            await asyncio.sleep(0)

    use_middleware(run=[lingers])
    plans.push()
    outcome = await crew.execute(crew.begin())
    assert isinstance(outcome, Failed)
    assert outcome.final
    assert "never awaited" in str(outcome.error)
    (planned,) = seen
    await asyncio.wait([planned])  # type: ignore[type-var, list-item]
    assert seen == [planned]
