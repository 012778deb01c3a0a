"""Tasks that end in unexpected ways."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import pydantic

from relier import TaskContext, rl_task
from relier.options import Retries
from tests.support.jobs.common import gate_opens, note


@rl_task
async def exit_async() -> None:
    sys.exit(7)


@rl_task
def exit_thread() -> None:
    sys.exit(7)


@rl_task
async def interrupt() -> None:
    raise KeyboardInterrupt


@rl_task
async def cancel_oneself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


@rl_task
async def raise_group() -> None:
    raise BaseExceptionGroup("many", [ValueError("one"), KeyboardInterrupt()])


@rl_task
async def return_strange() -> Any:
    return {"x": object()}


@dataclass
class Config:
    """A class that can be created where the task is pushed, but not in a worker."""

    path: str

    def __post_init__(self) -> None:
        if "FLEET_FOLDER" in os.environ:
            sys.exit(f"{self.path} is missing")


@rl_task
async def configured(config: Config) -> str:
    return config.path


class Order(pydantic.BaseModel):
    number: int
    customer: str


@rl_task
async def return_half() -> Order:
    """Return a model that was created without validation, and raises when it is inspected."""
    return Order.model_construct(number=1)


@rl_task(isolate=True)
async def return_half_alone() -> Order:
    return Order.model_construct(number=1)


class Unspeakable(Exception):
    @property
    def args(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no arguments")


@rl_task(isolate=True)
async def fail_unspeakably_alone() -> None:
    raise Unspeakable


def leave(ctx: TaskContext) -> None:
    sys.exit(9)


async def leave_async(ctx: TaskContext) -> None:
    sys.exit(9)


@rl_task(soft_timeout=0.1, on_soft_timeout=leave)
async def bad_hook(ctx: TaskContext) -> int:
    await asyncio.sleep(0.5)
    return 1


@rl_task(soft_timeout=0.1, on_soft_timeout=leave_async)
async def bad_async_hook(ctx: TaskContext) -> int:
    await asyncio.sleep(0.5)
    return 1


@rl_task(max_resurrections=1)
def exit_process(ctx: TaskContext) -> None:
    note("begin", ctx)
    os._exit(0)


@rl_task(isolate=True, retries=Retries(attempts=1, backoff=0.1))
def alone() -> int:
    return 1


@rl_task(retries=Retries(attempts=2, backoff=0.1, factor=1e6, max_backoff=0.2))
async def fail() -> None:
    raise ValueError("always")


class Strange(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@rl_task
async def fail_strangely() -> None:
    raise Strange


@rl_task
async def leave_behind(ctx: TaskContext) -> int:
    """Start a thread and a coroutine that outlive the task."""
    asyncio.get_running_loop().create_task(gate_opens("never"))
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 30)
    return ctx.attempt


FORKS = multiprocessing.get_context("fork")


def wait_here(ready: Any) -> None:
    ready.set()
    time.sleep(60)


def end_forked() -> int | None:
    """Return how a forked process ended when it was asked to."""
    ready = FORKS.Event()
    child = FORKS.Process(target=wait_here, args=(ready,))
    child.start()
    try:
        ready.wait(10)
        child.terminate()
        child.join(10)
        return child.exitcode
    finally:
        child.kill()


def end_started() -> int | None:
    with subprocess.Popen(["sleep", "60"]) as child:
        child.terminate()
        try:
            return child.wait(10)
        except subprocess.TimeoutExpired:
            return None
        finally:
            child.kill()


@rl_task
def end_children() -> list[int | None]:
    return [end_forked(), end_started()]


@rl_task(isolate=True)
def end_children_alone() -> list[int | None]:
    return [end_forked(), end_started()]


@rl_task(isolate=True)
def talk_alone() -> None:
    logging.getLogger("shop").info("an aside")
    logging.getLogger("shop").error("a complaint")
