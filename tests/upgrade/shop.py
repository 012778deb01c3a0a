"""Tasks that both releases run: every feature that both have."""

from __future__ import annotations

import asyncio

from relier import TaskContext, rl_task
from relier.options import Retries


@rl_task
async def plain(n: int) -> int:
    await asyncio.sleep(0.02)
    return n


@rl_task(retries=Retries(attempts=5, backoff=0.05))
async def flaky(n: int, ctx: TaskContext) -> int:
    """Fail once. Kills must not use up the retries."""
    if ctx.attempt == 1:
        raise LookupError("not yet")
    return n


@rl_task
async def stepped(n: int, ctx: TaskContext) -> int:
    first = await ctx.step("first", lambda: n - 1)
    await asyncio.sleep(0.02)
    return await ctx.step("second", lambda: first + 1)


@rl_task
async def partial(n: int, ctx: TaskContext) -> int:
    await ctx.set_partial({"n": n})
    await asyncio.sleep(0.02)
    return n


@rl_task
def threaded(n: int) -> int:
    return n


@rl_task(idempotent=True, idempotency_key="{n}", idempotency_ttl=60)
async def once(n: int) -> int:
    return n


KINDS = (plain, flaky, stepped, partial, threaded, once)
