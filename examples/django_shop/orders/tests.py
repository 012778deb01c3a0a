"""Tests that need no server: `python manage.py test`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

from django.test import TestCase, override_settings

from orders import bank, tasks
from orders.models import Order, Report
from orders.tasks import make_report, pay
from relier.testing import context, kill_after_step, open_outbox, recorded, run_pending, store

Status = Order.Status


class ShopTest(TestCase):
    """A test with a bank of its own. `self.rows` is the outbox; nothing runs in the background."""

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(override_settings(BANK_BOOKS=Path(folder) / "bank.json"))
        self.enterContext(mock.patch.object(tasks, "PAGE_S", 0))
        self.rows = self.enterContext(open_outbox())

    def order(self, **fields: object) -> int:
        return self.client.post("/orders", {"item": "tea", "cents": 450} | fields).json()["order"]

    def status(self, order: int) -> str:
        return Order.objects.get(pk=order).status


class OrderTest(ShopTest):
    def test_an_order_is_stored_with_its_payment(self) -> None:
        order = self.order()
        self.rows.assert_sent(pay, order, "valid")
        self.rows.drain(run=True)
        self.assertEqual((self.status(order), bank.total()), (Status.PAID, 450))

    def test_a_wrong_order_leaves_nothing(self) -> None:
        self.assertEqual(self.client.post("/orders", {"item": "tea", "cents": "none"}).status_code, 422)
        self.rows.assert_sent(pay, times=0)

    def test_a_declined_card_can_be_replaced(self) -> None:
        order = self.order(card="declined")
        with self.assertRaises(bank.Declined):
            self.rows.drain(run=True)
        self.assertEqual((self.status(order), bank.total()), (Status.DECLINED, 0))
        self.client.post(f"/orders/{order}/pay")
        self.rows.drain(run=True)
        self.assertEqual((self.status(order), bank.total()), (Status.PAID, 450))

    def test_customers_see_and_pay_their_own_orders(self) -> None:
        order = self.order(card="declined")
        self.client.post("/customer")
        self.assertEqual(self.client.get("/orders").json(), {"orders": []})
        self.assertEqual(self.client.post(f"/orders/{order}/pay").status_code, 404)


class PaymentTest(ShopTest):
    def setUp(self) -> None:
        super().setUp()
        self.placed = Order.objects.create(customer="ann", item="tea", cents=450).pk
        self.enterContext(store())

    def test_two_clicks_are_one_payment(self) -> None:
        first, second = pay.push(self.placed, "valid"), pay.push(self.placed, "valid")
        self.assertEqual((first.id, second.duplicate), (second.id, True))
        self.assertEqual([each.outcome for each in run_pending()], ["done"])
        self.assertEqual((self.status(self.placed), bank.total()), (Status.PAID, 450))

    def test_a_killed_worker_does_not_charge_twice(self) -> None:
        pay.push(self.placed, "valid")
        self.assertEqual([each.outcome for each in run_pending(kill_after_step("charge"))], ["killed", "done"])
        self.assertEqual((self.status(self.placed), bank.total()), (Status.PAID, 450))


class ReportTest(ShopTest):
    def test_it_reports_its_progress(self) -> None:
        Order.objects.create(customer="ann", item="tea", cents=450)
        with context() as ctx:
            self.assertEqual(make_report("ann"), {"orders": 1, "cents": 450})
        self.assertEqual(ctx.recorded.progress[-1], "20 of 20: page 20")

    def test_only_its_customer_can_read_it(self) -> None:
        with store():
            task = make_report.push("ann").id
            Report.objects.create(customer="ann", task=task)
            self.assertEqual(self.client.get(f"/reports/{task}").status_code, 202)
            run_pending()
            self.assertEqual(self.client.get(f"/reports/{task}").json()["result"], {"orders": 0, "cents": 0})
            self.client.post("/customer")
            self.assertEqual(self.client.get(f"/reports/{task}").status_code, 404)

    def test_it_is_stored_with_the_customer_who_asked_for_it(self) -> None:
        with recorded() as pushed:
            task = self.client.post("/reports").json()["task"]
        pushed.assert_pushed(make_report, "ann")
        self.assertEqual(Report.objects.get(task=task).customer, "ann")
