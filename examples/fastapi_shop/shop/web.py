"""The shop's web application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import Cookie, Depends, FastAPI, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, PositiveInt
from sqlalchemy import select
from sqlalchemy.orm import Session

from relier.fastapi import add_exception_handlers, new_owned_id, owner_in, relier_lifespan, task_router
from shop.database import Order, create_tables, get_session
from shop.tasks import make_report, pay

PAGE = Path(__file__).with_name("page.html")


@asynccontextmanager
async def own_lifespan(_: FastAPI) -> AsyncIterator[None]:
    create_tables()
    yield


def current_customer(request: Request) -> str | None:
    """Return who asks. A real shop would look into its session store; this one trusts a cookie."""
    return request.cookies.get("customer")


Customer = Annotated[str, Cookie(alias="customer")]
Database = Annotated[Session, Depends(get_session)]

app = FastAPI(title="Shop", lifespan=relier_lifespan(own_lifespan))
add_exception_handlers(app)
app.include_router(task_router(may_use=owner_in(current_customer)))


class NewOrder(BaseModel):
    item: str
    cents: PositiveInt
    card: str = "valid"


@app.get("/")
def page() -> FileResponse:
    return FileResponse(PAGE)


@app.get("/orders")
def orders(customer: Customer, session: Database) -> list[dict[str, int | str | bool]]:
    found = session.scalars(select(Order).where(Order.customer == customer).order_by(Order.id.desc()))
    return [{"id": each.id, "item": each.item, "cents": each.cents, "paid": each.paid} for each in found]


@app.post("/orders", status_code=201)
def place(new: NewOrder, customer: Customer, session: Database) -> dict[str, int | str]:
    """Store the order and its payment together: there is never one without the other."""
    with session.begin():
        order = Order(customer=customer, item=new.item, cents=new.cents)
        session.add(order)
        session.flush()  # it gets its id
        payment = pay.with_options(task_id=new_owned_id(customer)).push_in(session, order.id, new.card)
        return {"order": order.id, "task": payment.id}


@app.post("/reports", status_code=202)
async def report(customer: Customer) -> dict[str, str]:
    receipt = await make_report.with_options(task_id=new_owned_id(customer)).apush(customer)
    return {"task": receipt.id}
