"""The actors and the client of dramatiq."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers import SLEEP_SECONDS, URL_VARIABLE
from bench.peers.lateness import note

dramatiq.set_broker(RedisBroker(url=os.environ[URL_VARIABLE]))


@dramatiq.actor
def noop() -> None:
    pass


@dramatiq.actor
def sleep() -> None:
    time.sleep(SLEEP_SECONDS)


@dramatiq.actor
def stamp(sent: float) -> None:
    note(sent)


ACTORS = {"noop": noop, "sleep": sleep, "stamp": stamp}


@asynccontextmanager
async def opened() -> AsyncIterator[None]:
    yield


async def one(task: str, *args: float) -> None:
    ACTORS[task].send(*args)


async def many(task: str, n: int) -> None:
    dramatiq.group(ACTORS[task].message() for _ in range(n)).run()
