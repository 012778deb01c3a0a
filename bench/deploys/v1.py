"""The shop before: amounts are in euros, and there are no refunds."""

from __future__ import annotations

import asyncio
import random

from bench.guard_jobs import note
from relier import TaskContext, rl_task


@rl_task(name="deploy.charge", schema_version=1, max_resurrections=1000)
async def charge(customer: str, euros: float, ctx: TaskContext) -> str:
    note("ran", ctx.task_id, 1, ctx.metadata["schema_version"])
    await asyncio.sleep(random.uniform(0, 0.05))
    return f"{customer} {round(100 * euros)} EUR"
