"""A small shop in a namespace: tasks in every state, schedules, a batch, limits and nodes. For pictures and clicks."""

from __future__ import annotations

import json

from relier import rl_task
from relier.failure import failure_of, write_failure
from relier.ledger.batches.membership import BatchHeader, Member
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.nodes import Role
from relier.schedules.api import Schedules
from relier.submit.client import Client
from tests.support.cli_desk import LEASE_MS, Desk, body


@rl_task(name="shop.reports.nightly")
def nightly() -> None: ...


@rl_task(name="shop.stock.refresh")
def refresh() -> None: ...


def fill(desk: Desk) -> dict[str, str]:
    """Create everything, and return some ids: of a dead, a running and a queued task, and of a batch."""
    desk.run(desk.ledger.watch())
    second = desk.join(host="web2", pid=5151, queues=["mail", "default"], concurrency=8, version="1.0.0")
    desk.run(desk.ledger.register("cron.77", LEASE_MS, json.dumps({"host": "cron1", "pid": 77}), Role.SCHEDULER))
    for n in range(4):
        desk.dead("PaymentDeclined", detail=_failure(f"card of customer {n} was declined"), name="shop.payments.charge")
    dead = desk.dead(
        "TimeoutError", detail=_failure("no answer from the bank within 30 s"), name="shop.payments.refund"
    )
    for n in range(9):
        desk.done(json.dumps({"sent": n}).encode(), name="shop.mail.send", payload=body(f"customer-{n}@example.com"))
    desk.cancelled(name="shop.reports.monthly")
    batch = _batch(desk)
    _limited(desk)
    running = _running(desk, second)
    for n in range(12):
        desk.push(queue="mail", name="shop.mail.send", payload=body(f"customer-{n}@example.com"))
    queued = desk.push(queue="imports", name="shop.stock.import", payload=body("warehouse-7"))
    desk.push(delay_ms=3_600_000, name="shop.reports.monthly")
    _schedules(desk)
    return {"dead": dead, "running": running, "queued": queued, "batch": batch}


def _failure(message: str) -> str:
    error = RuntimeError(message)
    try:
        raise error
    except RuntimeError:
        return write_failure(failure_of(error))


def _running(desk: Desk, worker: str) -> str:
    task = desk.push(queue="reports", name="shop.reports.yearly", payload=body(year=2026))
    lease = desk.claim("reports", worker).lease
    desk.run(desk.ledger.checkpoint(lease, 1, b'{"page": 12}'))
    desk.run(desk.ledger.step(lease, "load orders", b"[12031]"))
    desk.run(desk.ledger.progress(lease, "page 12 of 40"))
    return task


def _batch(desk: Desk) -> str:
    desk.run(desk.ledger.open_batch(BatchHeader(id="import-2026-11", name="import", open=True, lease_ms=LEASE_MS)))
    for n in range(6):
        member = Member(batch="import-2026-11", place=n)
        desk.push(queue="parts", name="shop.stock.import_part", payload=body(n), member=member)
    for n in range(4):
        lease = desk.claim("parts").lease
        if n == 2:
            desk.run(desk.ledger.bury(lease, "ValueError", _failure("row 17 has no price")))
        else:
            desk.run(desk.ledger.commit([(lease, b"1", ())]))
    return "import-2026-11"


def _limited(desk: Desk) -> None:
    limits = (RunLimit("tenant:{tenant}", "tenant:42", LimitNumbers(1)),)
    for _ in range(5):
        desk.push(queue="exports", name="shop.exports.make", limits=limits)
    desk.claim("exports")


def _schedules(desk: Desk) -> None:
    client = Client(desk.settings)
    try:
        schedules = Schedules(client)
        schedules.create("nightly-report", nightly, cron="0 3 * * *", tz="Europe/Paris")
        schedules.create("refresh-stock", refresh, every=300)
        schedules.pause("refresh-stock")
    finally:
        client.close()
