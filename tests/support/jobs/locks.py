"""Tasks that work under locks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from relier import TaskContext, idempotency_lock, rl_task


@rl_task
async def charge(order: str) -> str:
    async with idempotency_lock(order) as lock:
        if lock.already_executed:
            return f"charged before: {lock.cached_result}"
        lock.set_result("5.00")
        return "charged now"


@rl_task
def charge_in_a_thread(order: str) -> str:
    with idempotency_lock(order) as lock:
        if lock.already_executed:
            return f"charged before: {lock.cached_result}"
        lock.set_result("5.00")
        return "charged now"


@rl_task(isolate=True)
def charge_alone(order: str) -> str:
    with idempotency_lock(order) as lock:
        if lock.already_executed:
            return f"charged before: {lock.cached_result}"
        lock.set_result("5.00")
        return "charged now"


@rl_task
async def charge_slowly(order: str, entered: str, ctx: TaskContext) -> str:
    """The first attempt never ends."""
    async with idempotency_lock(order) as lock:
        with Path(entered).open("a") as file:  # noqa: ASYNC230
            file.write(f"{ctx.fence}\n")
        if ctx.metadata["deaths"] == 0:
            await asyncio.Event().wait()
        lock.set_result("5.00")
        return "charged now"
