"""Tasks that cause trouble: they block, swallow exceptions, leak, fork and kill. For tests of how Relier copes."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import operator
import os
import signal
import time
from functools import partial

from relier import TaskContext, idempotency_lock, rl_task
from relier.errors import LeaseLostError
from tests.support.jobs.common import gate_opens, is_open, note

HOARD: list[bytearray] = []


@rl_task
def hold_gil(seconds: float, ctx: TaskContext) -> int:
    """Compute in one C call that never lets another thread run."""
    note("begin", ctx)
    is_over = partial(operator.lt, time.perf_counter() + seconds)
    next(filter(is_over, iter(time.perf_counter, None)))
    note("end", ctx)
    return ctx.attempt


@rl_task
def hold_gil_idle(seconds: float, ctx: TaskContext) -> int:
    """Hold the GIL without computing, as in a deadlock, but only in the first attempt."""
    note("begin", ctx)
    if ctx.attempt == 1:
        ctypes.PyDLL(None).usleep(round(1e6 * seconds))
    note("end", ctx)
    return ctx.attempt


@rl_task
async def locked(gate: str, ctx: TaskContext) -> int:
    """Hold a lock until the gate opens."""
    async with idempotency_lock(f"locked {ctx.task_id}"):
        note("begin", ctx)
        await gate_opens(gate)
    return ctx.attempt


@rl_task
async def poison(ctx: TaskContext) -> None:
    """Wait until the other tasks run in the same process, and kill it."""
    note("poison", ctx)
    await gate_opens("poison")
    os.kill(os.getpid(), signal.SIGKILL)


@rl_task
async def innocent(ctx: TaskContext) -> int:
    note("begin", ctx)
    await gate_opens("go")
    return ctx.attempt


@rl_task(max_resurrections=1)
async def frail(ctx: TaskContext) -> int:
    note("begin", ctx)
    await gate_opens("go")
    return ctx.attempt


@rl_task(isolate=True, max_resurrections=0)
async def hog(ctx: TaskContext) -> None:
    """Kill the worker's process from an isolated one, as a task may that uses up all memory."""
    note("hog", ctx)
    os.kill(os.getppid(), signal.SIGKILL)
    await gate_opens("never")


@rl_task(hard_timeout=6)
async def punctual_after(ctx: TaskContext) -> int:
    """Take half a second from the moment when the gate opens. The hard timeout leaves enough time for that."""
    note("begin", ctx)
    await gate_opens("go")
    await asyncio.sleep(0.5)
    return ctx.attempt


@rl_task(isolate=True, hard_timeout=8)
def punctual_isolated(ctx: TaskContext) -> int:
    note("begin", ctx)
    time.sleep(1)
    return ctx.attempt


@rl_task(hard_timeout=0.5)
async def swallow(ctx: TaskContext) -> None:
    """Ignore every attempt to stop the task."""
    note("begin", ctx)
    while not is_open("end"):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
    note("end", ctx)


@rl_task(hard_timeout=0.5)
async def block_overdue(ctx: TaskContext) -> None:
    """Block the event loop past the task's hard timeout."""
    note("begin", ctx)
    while not is_open("end"):
        time.sleep(0.05)  # noqa: ASYNC251
    note("end", ctx)


@rl_task(hard_timeout=0.5)
def block_thread_overdue(ctx: TaskContext) -> None:
    """Block a thread in a call that nothing can interrupt."""
    note("begin", ctx)
    time.sleep(120)


@rl_task
def deaf(ctx: TaskContext) -> None:
    """Stay in a call that cannot be interrupted for a while, then check whether the attempt still holds the task."""
    note("begin", ctx)
    ctypes.CDLL(None).usleep(1_500_000)
    try:
        ctx.guard()
        note("trusted", ctx)
    except LeaseLostError:
        note("told", ctx)


@rl_task
async def hoard(megabytes: int, ctx: TaskContext) -> int:
    note("begin", ctx)
    HOARD.append(bytearray(os.urandom(1024)) * (1024 * megabytes))
    return os.getpid()


@rl_task
def fork_and_stay(gate: str, ctx: TaskContext) -> int:
    """Leave a process behind that outlives the worker, as a task may that uses multiprocessing."""
    pid = os.fork()
    if pid == 0:
        while not is_open("end"):
            time.sleep(0.01)
        os._exit(0)
    note("begin", ctx)
    while not is_open(gate):
        time.sleep(0.01)
    return ctx.attempt


@rl_task
async def clean_up(ctx: TaskContext) -> None:
    """Take some time to clean up when the task is stopped."""
    note("begin", ctx)
    try:
        await gate_opens("never")
    finally:
        await asyncio.sleep(1.5)
        note("clean", ctx)


@rl_task(hard_timeout=1)
async def brief(gate: str, ctx: TaskContext) -> int:
    """End long before the hard timeout, if the gate opens in time."""
    note("begin", ctx)
    await gate_opens(gate)
    note("end", ctx)
    return ctx.attempt


@rl_task
def guarded(ctx: TaskContext) -> None:
    """Check, before an effect, whether the attempt still holds the task."""
    note("begin", ctx)
    while not is_open("guard"):
        time.sleep(0.01)
    with contextlib.suppress(LeaseLostError):
        ctx.guard()
        note("trusted", ctx)
    note(f"checked{ctx.attempt}", ctx)
