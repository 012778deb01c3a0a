"""Middleware around pushes: blocking, awaited, in bulk, in a transaction."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from relier import ConfigurationError, Push, rl_task, use_middleware
from tests.support.crew import Crew

pytestmark = pytest.mark.anyio
seen: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    seen.clear()


async def moves(call_next: Any, push: Push) -> Any:
    """Push everything to another queue, with one argument changed."""
    calls = tuple(((args[0] + 1,), kwargs) for args, kwargs in push.calls)
    receipts = await call_next(replace(push, calls=calls, options=replace(push.options, queue="moved")))
    seen.append((push.task.name, push.calls, push.in_transaction, [each.id for each in receipts]))
    return receipts


async def waits(call_next: Any, push: Push) -> Any:
    await asyncio.sleep(0)
    return await call_next(push)


@rl_task(name="pm.echo")
async def echo(n: int) -> int:
    return n


@rl_task(name="pm.own", push_middleware=[moves])
async def own(n: int) -> int:
    return n


async def test_a_blocking_push_passes_through(crew: Crew) -> None:
    use_middleware(push=[moves])
    receipt = echo.push(1)
    task = crew.get(receipt.id)
    assert (task.record.queue, seen) == ("moved", [("pm.echo", (((1,), {}),), False, [receipt.id])])
    (again,) = echo.push_many([(5,)])
    assert crew.get(again.id).record.queue == "moved"


async def test_a_bulk_of_no_calls_has_no_receipts(crew: Crew) -> None:
    assert own.push_many([]) == []
    assert await own.apush_many([]) == []
    assert seen == [("pm.own", (), False, [])] * 2


async def test_an_awaited_push_passes_through_and_may_wait(crew: Crew) -> None:
    use_middleware(push=[waits, moves])
    receipt = await echo.apush(1)
    one, two = await echo.apush_many([(2,), (3,)])
    assert [crew.get(each.id).record.queue for each in (receipt, one, two)] == ["moved"] * 3
    assert seen[1][1] == (((2,), {}), ((3,), {}))


async def test_a_tasks_own_middleware_wraps_only_its_pushes(crew: Crew) -> None:
    assert crew.get(own.push(1).id).record.queue == "moved"
    assert crew.get(echo.push(1).id).record.queue == "default"


async def test_a_blocking_push_cannot_wait_in_its_middleware(crew: Crew) -> None:
    use_middleware(push=[waits])
    with pytest.raises(ConfigurationError, match=r"waited for something other than call_next.*use apush"):
        echo.push(1)
    assert crew.stats().counts.get("queued", 0) == 0


async def test_a_middleware_returns_what_call_next_returned(crew: Crew) -> None:
    async def forgetful(call_next: Any, push: Push) -> Any:
        await call_next(push)

    use_middleware(push=[forgetful])
    with pytest.raises(ConfigurationError, match="returned None for a push; return what call_next returned"):
        echo.push(1)


async def test_a_middleware_may_refuse_a_push(crew: Crew) -> None:
    async def refuses(call_next: Any, push: Push) -> Any:
        raise PermissionError("not for you")

    use_middleware(push=[refuses])
    with pytest.raises(PermissionError, match="not for you"):
        echo.push(1)
