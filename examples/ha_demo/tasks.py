"""The task that the producers push: short, so that thousands run while the primary is lost."""

from __future__ import annotations

import asyncio

from relier import rl_task


@rl_task
async def work(number: int) -> int:
    await asyncio.sleep(0.01)
    return number
