"""Tasks that run in processes of their own."""

from __future__ import annotations

import random
from typing import Any

from relier import Retries, TaskContext, rl_task

AGAIN = Retries(attempts=2, backoff=0.0, jitter=0.0)


@rl_task(isolate=True, retries=AGAIN)
async def resumes(size: int, ctx: TaskContext) -> int:
    if ctx.partial_result is None:
        await ctx.set_partial(random.Random(size).randbytes(size).hex())
        raise OSError("the first attempt ends here")
    return len(ctx.partial_result)


@rl_task(isolate=True, retries=AGAIN)
def resumes_sync(size: int, ctx: TaskContext) -> int:
    if ctx.partial_result is None:
        ctx.set_partial_sync(random.Random(size).randbytes(size).hex())
        raise OSError("the first attempt ends here")
    return len(ctx.partial_result)


@rl_task(isolate=True, retries=AGAIN)
async def steps(ctx: TaskContext) -> dict[str, Any]:
    first = await ctx.step("first", lambda: ctx.attempt)
    if ctx.attempt == 1:
        raise OSError("the first attempt ends here")
    second = await ctx.step("second", lambda: ctx.attempt)
    return {"first": first, "second": second, "attempt": ctx.attempt}


@rl_task(isolate=True, retries=AGAIN)
def steps_sync(ctx: TaskContext) -> dict[str, Any]:
    first = ctx.step_sync("first", lambda: ctx.attempt)
    if ctx.attempt == 1:
        raise OSError("the first attempt ends here")
    second = ctx.step_sync("second", lambda: ctx.attempt)
    ctx.progress(2, 2, "all")
    return {"first": first, "second": second, "attempt": ctx.attempt}


@rl_task(isolate=True)
async def careful(ctx: TaskContext) -> int:
    if ctx.attempt == 1 and ctx.partial_result is None:
        await ctx.set_partial("seen")
        ctx.lose()  # as if the worker had been told
        ctx.guard()
    return ctx.attempt
