"""The tasks of bench/cluster.py: one of each kind that leaves keys behind while it lives."""

from __future__ import annotations

import asyncio

from relier import Limit, TaskContext, rl_task

# Workers are killed at random, and the tasks are not at fault: hence max_resurrections=1000.


@rl_task(max_resurrections=1000)
async def plain(number: int) -> int:
    await asyncio.sleep(0.002)
    return number


@rl_task(max_resurrections=1000, retries=3)
async def fails_once(ctx: TaskContext, number: int) -> int:
    await ctx.step("begin", asyncio.sleep, 0.001)
    if ctx.attempt == 1:
        raise ValueError(f"attempt 1 of task {number} fails on purpose")
    return number


@rl_task(max_resurrections=1000, limits=Limit(concurrency=5, per="key:{key}"))
async def limited(key: int) -> None:  # noqa: ARG001 - for the limit
    await asyncio.sleep(0.002)


@rl_task(max_resurrections=1000, idempotent=True, idempotency_ttl=1)
async def once(number: int) -> int:
    return number


@rl_task(max_resurrections=1000)
async def summed(count: int) -> int:
    return count
