"""Tasks that use what a ledger offers: limits, steps, checkpoints, idempotency keys, schedules."""

from __future__ import annotations

from relier import Admit, Limit, TaskContext, rl_task


@rl_task(limits=[Limit(concurrency=1, per="press"), Limit(rate="100/s", per="page:{page}")])
async def limited(page: int) -> int:
    return page


@rl_task(retries=1, idempotency_key="all:{order}", admission=Admit("order:{order}", 1000, 10))
async def everything(order: int, ctx: TaskContext) -> int:
    await ctx.set_partial({"order": order})
    total: int = await ctx.step("sum", sum, [order, 1])
    if ctx.attempt == 1:
        raise ValueError("once")
    return total


@rl_task
async def fails() -> None:
    raise ValueError("always")


@rl_task(schedule="0 3 * * *")
async def nightly() -> str:
    return "good night"
