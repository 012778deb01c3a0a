from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from shop import bank
from shop.database import Order, open_session
from shop.tasks import pay


def paid() -> list[bool]:
    with open_session() as session:
        return list(session.scalars(select(Order.paid).order_by(Order.id)))


def test_an_order_is_stored_with_its_payment(ann: TestClient, assert_task_sent: Any, drain_outbox: Any) -> None:
    answer = ann.post("/orders", json={"item": "tea", "cents": 450})
    assert answer.status_code == 201
    assert_task_sent(pay, answer.json()["order"], "valid")
    (payment,) = drain_outbox(run=True)
    assert payment.id == answer.json()["task"]
    assert (paid(), bank.total()) == ([True], 450)


def test_a_wrong_order_leaves_nothing(ann: TestClient, assert_task_sent: Any) -> None:
    assert ann.post("/orders", json={"item": "tea", "cents": 0}).status_code == 422
    assert_task_sent(pay, times=0)


def test_a_declined_card_does_not_pay(ann: TestClient, drain_outbox: Any) -> None:
    ann.post("/orders", json={"item": "tea", "cents": 450, "card": "declined"})
    (payment,) = drain_outbox()
    with pytest.raises(bank.Declined):
        payment.run()
    assert (paid(), bank.total()) == ([False], 0)


def test_a_payment_that_runs_again_charges_once(ann: TestClient, drain_outbox: Any) -> None:
    ann.post("/orders", json={"item": "tea", "cents": 450})
    (payment,) = drain_outbox()
    assert payment.run() == payment.run()
    assert bank.total() == 450


def test_customers_see_their_own_orders(ann: TestClient, bob: TestClient) -> None:
    ann.post("/orders", json={"item": "tea", "cents": 450})
    assert [order["item"] for order in ann.get("/orders").json()] == ["tea"]
    assert bob.get("/orders").json() == []
