"""The shop's background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from relier import Depends, Retries, TaskContext, lifespan, rl_task
from shop import bank
from shop.database import Order, create_tables, get_session

PAGES = 20
PAGE_S = 0.15  # how long the shop needs for one page of its report


@lifespan
async def prepare() -> AsyncIterator[None]:
    """Run once in every process that runs tasks."""
    create_tables()
    yield


@rl_task(retries=Retries(never_on=bank.Declined))
def pay(ctx: TaskContext, order_id: int, card: str, session: Session = Depends(get_session)) -> str:
    """Charge the card of an order, and mark the order as paid.

    A worker may die between the two. The step is not repeated if it was recorded, and the bank knows the key if it was
    not. The mark and the order's change are one transaction.
    """
    with session.begin():
        cents = session.get_one(Order, order_id).cents
    charge = ctx.step_sync("charge", bank.charge, ctx.task_id, card, cents)
    with ctx.exactly_once(session) as mark:
        session.get_one(Order, order_id).paid = True
        mark.result = charge
    return mark.result


@rl_task
async def make_report(ctx: TaskContext, customer: str, session: Session = Depends(get_session)) -> dict[str, Any]:
    """Add up the orders of a customer, slowly enough to be watched."""
    for page in range(1, PAGES + 1):
        await asyncio.sleep(PAGE_S)
        ctx.progress(page, PAGES, f"page {page}")
    bought = select(func.count(Order.id), func.coalesce(func.sum(Order.cents), 0)).where(Order.customer == customer)
    orders, cents = session.execute(bought).one()
    return {"orders": orders, "cents": cents}
