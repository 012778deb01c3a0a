"""The tasks that the workers of the guards' benchmarks run. They write to a diary in the fleet's folder."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

from relier import TaskContext, rl_task

FOLDER = Path(os.environ.get("FLEET_FOLDER", "."))
STEPS = 10
FAILING_PRODUCERS = 2


def note(*words: object) -> None:
    """Append one line in one write, because processes share the file."""
    file = os.open(FOLDER / "guards", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, (" ".join(map(str, words)) + "\n").encode())
    finally:
        os.close(file)


@rl_task(idempotency_key="{key}", idempotency_ttl=86_400, max_resurrections=1000)
async def once(key: int, producer: int, ctx: TaskContext) -> int:
    """A task that several producers push at once. For every tenth key it fails for some producers, which frees the key
    for the next push."""
    note("run", key, ctx.task_id)
    await asyncio.sleep(random.uniform(0, 0.3))
    if key % 10 == 0 and producer < FAILING_PRODUCERS:
        raise ValueError(f"key {key} fails for producer {producer}")
    return key


async def effect(step: int, ctx: TaskContext) -> int:
    """Work a little, cause an effect that is visible from outside, then return."""
    await asyncio.sleep(random.uniform(0, 0.04))
    note("effect", ctx.task_id, step, ctx.attempt, os.getpid())
    await asyncio.sleep(random.uniform(0, 0.02))
    return ctx.attempt


@rl_task(max_resurrections=100_000)
async def ten_steps(ctx: TaskContext) -> list[int]:
    """Return the attempt that did each step."""
    note("begin", ctx.task_id, 0, ctx.attempt, os.getpid())
    done = []
    for step in range(STEPS):
        done.append(await ctx.step(f"step {step}", effect, step, ctx))
        note("kept", ctx.task_id, step, done[step], os.getpid())
    note("end", ctx.task_id, 0, ctx.attempt, os.getpid())
    return done
