"""The tasks and the client of Celery."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from celery import Celery, group

from bench.peers import SLEEP_SECONDS, URL_VARIABLE
from bench.peers.lateness import note

app = Celery("bench", broker=os.environ[URL_VARIABLE])
app.conf.update(task_acks_late=True, task_ignore_result=True, broker_connection_retry_on_startup=True)


@app.task(name="noop")
def noop() -> None:
    pass


@app.task(name="sleep")
def sleep() -> None:
    time.sleep(SLEEP_SECONDS)


@app.task(name="stamp")
def stamp(sent: float) -> None:
    note(sent)


TASKS = {"noop": noop, "sleep": sleep, "stamp": stamp}


@asynccontextmanager
async def opened() -> AsyncIterator[None]:
    yield


async def one(task: str, *args: float) -> None:
    TASKS[task].delay(*args)


async def many(task: str, n: int) -> None:
    signature = TASKS[task].s()
    group(signature.clone() for _ in range(n)).apply_async()
