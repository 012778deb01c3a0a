"""Tasks with a hard timeout that need the store while it is unreachable."""

from __future__ import annotations

import asyncio
import itertools
import time

from relier import TaskContext, idempotency_lock, rl_task
from tests.support.jobs.common import gate_opens, is_open, note, quick

HARD_S = 4.0


async def pay(ctx: TaskContext) -> int:
    note("begin", ctx)
    await gate_opens("pay")
    note("paid", ctx)
    return ctx.attempt


def pay_sync(ctx: TaskContext) -> int:
    note("begin", ctx)
    while not is_open("pay"):
        time.sleep(0.01)
    note("paid", ctx)
    return ctx.attempt


@rl_task(hard_timeout=HARD_S)
async def paying(ctx: TaskContext) -> int:
    return await ctx.step("pay", pay, ctx)


@rl_task(hard_timeout=HARD_S)
def paying_thread(ctx: TaskContext) -> int:
    return ctx.step_sync("pay", pay_sync, ctx)


@rl_task(hard_timeout=HARD_S, isolate=True)
def paying_apart(ctx: TaskContext) -> int:
    return ctx.step_sync("pay", pay_sync, ctx)


@rl_task(hard_timeout=HARD_S)
async def keeping(ctx: TaskContext) -> int:
    paid = await pay(ctx)
    await ctx.set_partial(paid)
    return paid


@rl_task(hard_timeout=HARD_S)
async def locking(ctx: TaskContext) -> int:
    async with idempotency_lock(f"pay {ctx.task_id}") as lock:
        lock.set_result(await pay(ctx))
    return ctx.attempt


@rl_task(hard_timeout=HARD_S)
def locking_thread(ctx: TaskContext) -> int:
    with idempotency_lock(f"pay {ctx.task_id}") as lock:
        lock.set_result(pay_sync(ctx))
    return ctx.attempt


@rl_task
async def pushing(ctx: TaskContext) -> str:
    await pay(ctx)
    return (await quick.apush()).id


@rl_task
def pushing_thread(ctx: TaskContext) -> str:
    pay_sync(ctx)
    return quick.push().id


@rl_task(isolate=True)
async def pushing_many(ctx: TaskContext) -> str:
    await pay(ctx)
    return (await quick.apush_many([()] * 3000))[-1].id


@rl_task
def pushing_many_thread(ctx: TaskContext) -> str:
    pay_sync(ctx)
    return quick.push_many([()] * 3000)[-1].id


@rl_task(hard_timeout=1)
async def endless(ctx: TaskContext) -> None:
    """Some branch of this task is always waiting for the store, although the store is healthy."""

    async def branch(name: str) -> None:
        for number in itertools.count():
            await ctx.step(f"{name} {number}", int)

    await asyncio.gather(*(branch(f"branch {number}") for number in range(3)))


PUSHING = (pushing, pushing_thread, pushing_many, pushing_many_thread)
PATIENT = (paying, paying_thread, paying_apart, keeping, locking, locking_thread)
