"""The tasks and the client of Relier."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.peers import SLEEP_SECONDS
from bench.peers.lateness import note
from relier import rl_task


@rl_task
async def noop() -> None:
    pass


@rl_task
async def sleep() -> None:
    await asyncio.sleep(SLEEP_SECONDS)


@rl_task
async def stamp(sent: float) -> None:
    note(sent)


TASKS: dict[str, Any] = {"noop": noop, "sleep": sleep, "stamp": stamp}


@asynccontextmanager
async def opened() -> AsyncIterator[None]:
    yield


async def one(task: str, *args: float) -> None:
    await TASKS[task].apush(*args)


async def many(task: str, n: int) -> None:
    await TASKS[task].apush_many([()] * n)
