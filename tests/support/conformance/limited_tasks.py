"""Tasks with limits at run time. Each notes its start and its end in a folder that the test passes."""

from __future__ import annotations

import asyncio

from relier import Limit, rl_task, task_context
from tests.support.conformance.signals import block_until_noted, note, until_noted

PER_KEY = (Limit(concurrency=2, per="key:{key}"),)


async def _brief(folder: str) -> str:
    note(folder, "ends", f"+{task_context.task_id}")
    await asyncio.sleep(0.005)
    note(folder, "ends", f"-{task_context.task_id}")
    return f"attempt {task_context.attempt}"


@rl_task(limits=PER_KEY)
async def brief(folder: str, key: str = "a") -> str:
    return await _brief(folder)


@rl_task(limits=PER_KEY, isolate=True)
async def brief_alone(folder: str, key: str = "a") -> str:
    return await _brief(folder)


@rl_task(limits=PER_KEY)
async def hold(folder: str, key: str = "a") -> str:
    note(folder, "runs", f"{task_context.task_id} {task_context.worker_id}")
    await until_noted(folder, "go")
    return f"attempt {task_context.attempt}"


@rl_task(limits=PER_KEY, isolate=True)
def hold_alone(folder: str, key: str = "a") -> str:
    note(folder, "runs", f"{task_context.task_id} {task_context.worker_id}")
    block_until_noted(folder, "go")
    return f"attempt {task_context.attempt}"


@rl_task(limits=(Limit(rate="20/s", burst=1),))
async def paced() -> None:
    """Start at most every 50 ms."""


HOLDS = {"async": hold, "isolated": hold_alone}
BRIEFS = {"async": brief, "isolated": brief_alone}
