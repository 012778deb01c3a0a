"""An attempt that has ended is freed at once. Reference cycles made a worker a third slower."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass
from typing import Any

import pytest

from relier import TaskContext, rl_task
from tests.support.crew import Crew, until

pytestmark = pytest.mark.anyio


@dataclass
class Order:
    """An argument, which its attempt keeps alive."""

    number: int


seen: list[weakref.ref[Order]] = []


@rl_task
async def on_the_loop(order: Order, ctx: TaskContext) -> None:
    seen.append(weakref.ref(order))
    await ctx.step("one", lambda: 1)


@rl_task
def in_a_thread(order: Order, ctx: TaskContext) -> None:
    seen.append(weakref.ref(order))
    ctx.step_sync("one", lambda: 1)


@pytest.mark.parametrize("task", [on_the_loop, in_a_thread], ids=["async def", "def"])
async def test_an_ended_attempt_leaves_no_reference_cycles(crew: Crew, task: Any) -> None:
    seen.clear()
    gc.disable()
    try:
        async with crew.working():
            for number in range(20):
                await (await task.apush(Order(number))).result(10)
            await until(lambda: [held for held in seen if held() is not None] == [], 5, "the end of each attempt")
    finally:
        gc.enable()
    assert len(seen) == 20
