"""The shop after: amounts are in cents and have a currency, and there are refunds."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from bench.guard_jobs import note
from relier import TaskContext, rl_task


@rl_task(name="deploy.charge", schema_version=3, max_resurrections=1000)
async def charge(customer: str, cents: int, *, currency: str, ctx: TaskContext) -> str:
    note("ran", ctx.task_id, 3, ctx.metadata["schema_version"])
    await asyncio.sleep(random.uniform(0, 0.05))
    return f"{customer} {cents} {currency}"


@charge.migration(from_version=1)
def in_cents(payload: dict[str, Any]) -> dict[str, Any]:
    customer, euros = payload["args"]
    return {"args": [customer, round(100 * euros)], "kwargs": payload["kwargs"]}


@charge.migration(from_version=2)
def with_currency(payload: dict[str, Any]) -> dict[str, Any]:
    return {"args": payload["args"], "kwargs": {"currency": "EUR"}}


@rl_task(name="deploy.refund", max_resurrections=1000)
async def refund(customer: str, ctx: TaskContext) -> str:
    note("ran", ctx.task_id, 3, ctx.metadata["schema_version"])
    return f"{customer} back"
