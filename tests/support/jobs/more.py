"""Another module with a task of a name that is taken elsewhere."""

from __future__ import annotations

from relier import TaskContext, rl_task
from tests.support.jobs.common import note


@rl_task
async def where(ctx: TaskContext) -> str:
    note("begin", ctx)
    return __name__
