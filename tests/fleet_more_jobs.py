"""Another module with a task of a name that is taken elsewhere."""

from __future__ import annotations

from fleet_jobs import note
from relier import TaskContext, rl_task


@rl_task
async def where(ctx: TaskContext) -> str:
    note("begin", ctx)
    return __name__
