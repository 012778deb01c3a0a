"""Another module, with a task whose name also exists elsewhere."""

from __future__ import annotations

from relier import TaskContext, rl_task
from tests.support.jobs.common import note


@rl_task
async def where(ctx: TaskContext) -> str:
    note("begin", ctx)
    return __name__
