"""Tasks whose code harms other tasks, their worker, or the process they run in."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from relier import TaskContext, rl_task
from tests.support.jobs.common import gate_opens, is_open, note


@rl_task
async def cancel_everybody(ctx: TaskContext) -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)
    note("cancelled", ctx)


@rl_task(isolate=True)
async def cancel_everybody_alone(ctx: TaskContext) -> int:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)
    return ctx.attempt


@rl_task
async def hold_branches(gate: str, ctx: TaskContext) -> int:
    """Wait until the gate opens, in asyncio tasks that this task starts."""
    note("begin", ctx)
    await asyncio.gather(gate_opens(gate), gate_opens(gate))
    note("end", ctx)
    return ctx.attempt


@rl_task
async def cancel_a_part(ctx: TaskContext) -> None:
    """Cancel a part of this task itself: that is a failure."""
    part = asyncio.get_running_loop().create_task(asyncio.sleep(60))
    asyncio.get_running_loop().call_soon(part.cancel)
    await part


@rl_task
async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()


@rl_task(isolate=True)
async def stop_the_loop_alone() -> None:
    asyncio.get_running_loop().stop()


def fork() -> int:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)  # the copy must end by itself
    return pid


@rl_task
async def fork_and_return(ctx: TaskContext) -> bool:
    forked = fork()
    note("forked", ctx)
    return forked > 0


@rl_task
async def fork_and_wait(ctx: TaskContext) -> bool:
    forked = fork()
    note("forked", ctx)
    await asyncio.sleep(0.01)
    note("waited", ctx)
    return forked > 0


@rl_task
async def fork_and_raise(ctx: TaskContext) -> None:
    fork()
    note("forked", ctx)
    raise SystemExit(3)


@rl_task
async def fork_in_a_branch(ctx: TaskContext) -> bool:
    async def branch() -> bool:
        forked = fork()
        note("forked", ctx)
        return forked > 0

    return (await asyncio.gather(branch(), asyncio.sleep(0)))[0]


@rl_task
def fork_in_a_thread(ctx: TaskContext) -> bool:
    forked = fork()
    note("forked", ctx)
    return forked > 0


@rl_task(isolate=True)
async def fork_alone(ctx: TaskContext) -> bool:
    forked = fork()
    note("forked", ctx)
    return forked > 0


@rl_task(isolate=True)
def fork_in_a_thread_alone(ctx: TaskContext) -> bool:
    forked = fork()
    note("forked", ctx)
    return forked > 0


def ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


@rl_task
async def ignore(ctx: TaskContext) -> None:
    ignore_signals()


@rl_task
async def ignore_and_block(gate: str, ctx: TaskContext) -> int:
    """Ignore signals and block the loop, so that nothing of the worker can run."""
    if ctx.attempt == 1:
        ignore_signals()
    note("begin", ctx)
    while not is_open(gate):
        time.sleep(0.01)  # noqa: ASYNC251
    return ctx.attempt


@rl_task(isolate=True)
async def ignore_and_block_alone(gate: str, ctx: TaskContext) -> int:
    ignore_signals()
    note("begin", ctx)
    while not is_open(gate):
        time.sleep(0.01)  # noqa: ASYNC251
    return ctx.attempt


@rl_task
async def change_folder(to: str) -> str:
    """Change the folder and the environment, so that a process started with them finds none of our modules, and another
    store."""
    os.chdir(to)
    os.environ.update({"PYTHONPATH": "", "RELIER_NAMESPACE": "another", "FLEET_FOLDER": to})
    return os.getcwd()


@rl_task(isolate=True)
async def where_alone() -> list[str]:
    return [os.getcwd(), os.environ["RELIER_NAMESPACE"], os.environ["FLEET_FOLDER"]]


@rl_task
async def where() -> str:
    return os.getcwd()


@rl_task
async def keep(text: str, ctx: TaskContext) -> str:
    """Save a checkpoint, which the second attempt finds after the folder was changed."""
    if ctx.attempt == 1:
        await ctx.set_partial(text)
        note("kept", ctx)
        await gate_opens("never")
    return str(ctx.partial_result)


@rl_task
def push_sync(text: str) -> str:
    """Make the first blocking push of this process."""
    return pushed.push(text).id


@rl_task
async def pushed(text: str) -> str:
    return text
