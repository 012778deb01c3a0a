"""The tasks of bench/limits.py. Each writes its start and its end to a list in the store, which orders them."""

from __future__ import annotations

import asyncio
import random

from relier import Limit, TaskContext, rl_task
from relier.submit.client import default_client

HISTORY = "bench:history"
MOST = 3


# A revived task is the first of its lane, so the next kill often hits it again. It must be allowed to die often.
@rl_task(limits=Limit(concurrency=MOST, per="key:{key}"), max_resurrections=1000)
async def counted(key: int, ctx: TaskContext) -> None:
    await note(f"+ {key} {ctx.task_id} {ctx.fence} {ctx.worker_id}")
    await asyncio.sleep(random.uniform(0.01, 0.1))
    await note(f"- {key} {ctx.task_id} {ctx.fence} {ctx.worker_id}")


async def note(line: str) -> None:
    await default_client().store.command("RPUSH", HISTORY, line)


@rl_task(limits=Limit(concurrency=MOST, per="tenant:{tenant}"))
async def nap(tenant: str, seconds: float) -> None:  # noqa: ARG001 - for the limit
    await asyncio.sleep(seconds)
