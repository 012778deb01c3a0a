"""The tasks and the client of taskiq."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from taskiq_redis import RedisStreamBroker

from bench.peers import SLEEP_SECONDS, URL_VARIABLE
from bench.peers.lateness import note

AT_ONCE = 100  # taskiq has no bulk call; this many at a time keep its pool of connections small

# The group reads from the beginning: by default it would skip tasks sent before the first worker started.
broker = RedisStreamBroker(os.environ[URL_VARIABLE], consumer_id="0")


@broker.task(task_name="noop")
async def noop() -> None:
    pass


@broker.task(task_name="sleep")
async def sleep() -> None:
    await asyncio.sleep(SLEEP_SECONDS)


@broker.task(task_name="stamp")
async def stamp(sent: float) -> None:
    note(sent)


TASKS = {"noop": noop, "sleep": sleep, "stamp": stamp}


@asynccontextmanager
async def opened() -> AsyncIterator[None]:
    await broker.startup()
    yield
    await broker.shutdown()


async def one(task: str, *args: float) -> None:
    await TASKS[task].kiq(*args)


async def many(task: str, n: int) -> None:
    sent = 0
    while sent < n:
        now = min(AT_ONCE, n - sent)
        await asyncio.gather(*(TASKS[task].kiq() for _ in range(now)))
        sent += now
