"""The tasks of the demo: three kinds of work. Their workers may die at any time."""

from __future__ import annotations

import asyncio
import contextlib
import time

from relier import rl_task


@rl_task
async def charge(customer: str, cents: int) -> str:
    """Wait, as for an answer from a payment provider."""
    await asyncio.sleep(0.1)
    return f"{customer} paid {cents} cents"


@rl_task
def resize(picture: int, width: int) -> str:
    """Block, as old libraries do: a `def` runs in a thread."""
    time.sleep(0.1)
    return f"picture {picture} is {width} wide"


@rl_task(queue="reports")
async def report(month: int) -> str:
    """Take some time, and ignore cancellation: as a zombie, the task still tries to commit."""
    writing = asyncio.ensure_future(asyncio.sleep(1.5))
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.shield(writing)
    await writing
    return f"report {month} is ready"
