"""The shop's background tasks. `manage.py relier_worker` finds this module by its name."""

from __future__ import annotations

import time
from typing import Any

from django.db.models import Count, Sum

from orders import bank
from orders.models import Order
from relier import Retries, TaskContext, rl_task

PAGES = 20
PAGE_S = 0.15  # how long the shop needs for one page of its report


@rl_task(retries=Retries(never_on=bank.Declined), idempotency_key="order-{order}")
def pay(ctx: TaskContext, order: int, card: str) -> str:
    """Charge the card of an order, and mark the order as paid.

    The idempotency key makes two clicks one payment. A worker may die between the charge and the mark: the step is not
    repeated if it was recorded, and the bank knows the key if it was not. The mark and the order's new status are one
    transaction.
    """
    found = Order.objects.get(pk=order)
    try:
        charge = ctx.step_sync("charge", bank.charge, f"order-{order}", card, found.cents)
    except bank.Declined:
        Order.objects.filter(pk=order, status=Order.Status.WAITING).update(status=Order.Status.DECLINED)
        raise  # the task becomes a dead letter, with this reason
    with ctx.exactly_once("default") as mark:
        Order.objects.filter(pk=order).update(status=Order.Status.PAID)
        mark.result = charge
    return charge


@rl_task
def make_report(ctx: TaskContext, customer: str) -> dict[str, Any]:
    """Add up the orders of a customer, slowly enough to be watched."""
    for page in range(1, PAGES + 1):
        time.sleep(PAGE_S)
        ctx.progress(page, PAGES, f"page {page}")
    bought = Order.objects.filter(customer=customer).aggregate(orders=Count("pk"), cents=Sum("cents", default=0))
    return {"orders": bought["orders"], "cents": bought["cents"]}
