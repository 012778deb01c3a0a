"""The tasks that the workers of bench/batches.py run."""

from __future__ import annotations

import asyncio

from relier import rl_task


@rl_task(max_resurrections=50)  # the task is not at fault when its worker is killed
async def member(number: int, fails: bool = False) -> int:
    await asyncio.sleep(0.005)
    if fails:
        raise ValueError(f"member {number} fails on purpose")
    return number


@rl_task(max_resurrections=50)  # the task is not at fault when its worker is killed
async def slow(number: int) -> int:
    await asyncio.sleep(0.05)
    return number


@rl_task(max_resurrections=50)  # the task is not at fault when its worker is killed
async def succeeded(batch: int) -> int:
    return batch


@rl_task(max_resurrections=50)  # the task is not at fault when its worker is killed
async def failed(batch: int) -> int:
    return batch


@rl_task(max_resurrections=50)  # the task is not at fault when its worker is killed
async def completed(batch: int) -> int:
    return batch
