"""Tasks for tests with keys, also in isolated processes."""

from __future__ import annotations

import asyncio
import os
import re
from typing import Any

from relier import TaskContext, rl_task

ran: list[tuple[Any, ...]] = []


@rl_task
async def charge(card: str, cents: int) -> dict[str, Any]:
    ran.append((card, cents))
    return {"card": card, "cents": cents}


@rl_task
async def refund(card: str, cents: int) -> dict[str, Any]:
    ran.append((card, cents))
    return {"card": card, "cents": -cents}


@rl_task(isolate=True)
def apart(card: str) -> list[Any]:
    return [card, os.getpid()]


@rl_task(isolate=True)
def apart_declined(card: str) -> None:
    raise LookupError(f"{card} was declined")


@rl_task
async def declined(card: str) -> None:
    raise LookupError(f"{card} was declined")


def pay(card: str) -> dict[str, Any]:
    ran.append(("pay", card))
    return {"paid with": card}


@rl_task
async def careful(card: str, rest: str, ctx: TaskContext) -> list[Any]:
    """Record a step and a checkpoint, and succeed only if both are found."""
    paid = await ctx.step("pay", pay, card)
    if ctx.partial_result is None:
        await ctx.set_partial({"card": card, "rest": rest})
        raise RuntimeError("not yet")
    return [paid, ctx.partial_result["card"], len(ctx.partial_result["rest"])]


@rl_task(isolate=True)
def careful_apart(card: str, rest: str, ctx: TaskContext) -> list[Any]:
    paid = ctx.step_sync("pay", pay, card)
    if ctx.partial_result is None:
        ctx.set_partial_sync({"card": card, "rest": rest})
        raise RuntimeError("not yet")
    return [paid, ctx.partial_result["card"], len(ctx.partial_result["rest"])]


async def warn(ctx: TaskContext) -> None:
    warned.set()
    raise LookupError(f"no room for {ctx.args[0]}")


warned = asyncio.Event()


@rl_task(soft_timeout=0.05, on_soft_timeout=warn)
async def slow(card: str) -> None:
    await warned.wait()


@rl_task
async def large(size: int) -> str:
    return "x" * size


@rl_task
async def parent(card: str, ctx: TaskContext) -> str:
    return (await charge.apush(card, 1)).id


def mask(_task_name: str, value: Any) -> Any:
    if isinstance(value, str):
        return re.sub(r"\d{4}-\d{4}-\d{4}-\d{4}", "(card)", value)
    return [mask(_task_name, item) for item in value] if isinstance(value, list) else value
