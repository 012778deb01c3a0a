"""Tasks whose outcomes are counted in the metrics."""

from __future__ import annotations

from relier import Retries, TaskContext, rl_task


@rl_task(retries=0)
async def fails() -> None:
    raise LookupError("as always")


@rl_task(retries=Retries(attempts=1, backoff=0.01))
async def second_time_lucky(ctx: TaskContext) -> int:
    if ctx.attempt == 1:
        raise LookupError("the first time")
    return ctx.attempt
