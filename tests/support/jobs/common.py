"""The tasks that the workers of a fleet run. Each run writes to the diary when it begins and when it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from relier import TaskContext, rl_task

FOLDER = Path(os.environ.get("FLEET_FOLDER", "."))


def note(what: str, ctx: TaskContext) -> None:
    """Append one line in one write, because processes share the file."""
    line = f"{what} {ctx.task_id} {ctx.attempt} {os.getpid()} {time.monotonic():.6f}\n"
    file = os.open(FOLDER / "diary", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def is_open(gate: str) -> bool:
    return (FOLDER / f"gate-{gate}").exists()


async def gate_opens(gate: str) -> None:
    while not is_open(gate):  # noqa: ASYNC110 - it is opened from outside
        await asyncio.sleep(0.01)


@rl_task
async def quick(ctx: TaskContext) -> int:
    note("begin", ctx)
    return ctx.attempt


@rl_task
async def echo(value: Any) -> Any:
    return value


@rl_task
async def where(ctx: TaskContext) -> str:
    note("begin", ctx)
    return __name__


@rl_task
async def hold(gate: str, ctx: TaskContext) -> int:
    """Wait until the gate opens."""
    note("begin", ctx)
    await gate_opens(gate)
    note("end", ctx)
    return ctx.attempt


@rl_task
def hold_thread(gate: str, ctx: TaskContext) -> int:
    note("begin", ctx)
    while not is_open(gate):
        time.sleep(0.01)
    note("end", ctx)
    return ctx.attempt


@rl_task
async def stubborn(gate: str, ctx: TaskContext) -> int:
    """Wait until the gate of this attempt opens, and ignore every attempt to stop the task."""
    note("begin", ctx)
    while not is_open(f"{gate}{ctx.attempt}"):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
    note("end", ctx)
    return ctx.attempt


@rl_task
async def block(gate: str, ctx: TaskContext) -> int:
    """Block the event loop, as a task should not."""
    note("begin", ctx)
    while not is_open(gate):
        time.sleep(0.01)  # noqa: ASYNC251
    note("end", ctx)
    return ctx.attempt


@rl_task
async def spin(gate: str, ctx: TaskContext) -> int:
    """Keep the event loop busy without ever blocking it."""
    note("begin", ctx)
    while not is_open(gate):  # noqa: ASYNC110
        await asyncio.sleep(0)
    return ctx.attempt


@rl_task(max_resurrections=2)
async def suicide(ctx: TaskContext) -> None:
    """Kill the process, as the system's out-of-memory killer would."""
    note("begin", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@rl_task(isolate=True)
async def suicide_isolated(ctx: TaskContext) -> None:
    note("begin", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@rl_task(isolate=True)
async def hold_isolated(gate: str, ctx: TaskContext) -> int:
    note("begin", ctx)
    await gate_opens(gate)
    note("end", ctx)
    return ctx.attempt


@rl_task
async def nap(seconds: float, ctx: TaskContext) -> int:
    note("begin", ctx)
    await asyncio.sleep(seconds)
    return ctx.attempt


@rl_task
def nap_thread(seconds: float, ctx: TaskContext) -> int:
    note("begin", ctx)
    time.sleep(seconds)
    return ctx.attempt


@rl_task
async def due(eta_ms: int) -> None:
    """Note how late the task runs (ms), by the machine's clock: the store is on the same machine."""
    file = os.open(FOLDER / "lateness", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{time.time() * 1000 - eta_ms:.3f}\n".encode())
    finally:
        os.close(file)
