"""A small shop in a namespace: tasks in every state, schedules, a batch, limits and nodes. For pictures and clicks."""

from __future__ import annotations

import json

from relier import batch, chain, rl_task
from relier.failure import failure_of, write_failure
from relier.ledger.batches.membership import BatchHeader, Member
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.nodes import Role
from relier.schedules.api import Schedules
from relier.submit.client import Client, use_client
from tests.support.cli_desk import LEASE_MS, Desk, body


@rl_task(name="shop.reports.nightly")
def nightly() -> None: ...


@rl_task(name="shop.stock.refresh")
def refresh() -> None: ...


@rl_task(name="shop.catalogue.import_page", queue="catalogue")
def import_page(page: int) -> int:
    return page


@rl_task(name="shop.catalogue.check", queue="catalogue")
def check(page: int) -> int:
    return page


@rl_task(name="shop.catalogue.index", queue="catalogue")
def index(page: int) -> None: ...


@rl_task(name="shop.catalogue.announce", queue="catalogue")
def announce() -> None: ...


@rl_task(name="shop.catalogue.alert", queue="catalogue")
def alert() -> None: ...


def fill(desk: Desk) -> dict[str, str]:
    """Create everything, and return some ids: of a dead, a running and a queued task, of a batch and a workflow."""
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
    parts, workflow = _batch(desk), _workflow(desk)
    _relays(desk)
    _outcomes(desk)
    _limited(desk)
    running = _running(desk, second)
    for n in range(12):
        desk.push(queue="mail", name="shop.mail.send", payload=body(f"customer-{n}@example.com"))
    queued = desk.push(queue="imports", name="shop.stock.import", payload=body("warehouse-7"))
    desk.push(delay_ms=3_600_000, name="shop.reports.monthly")
    _schedules(desk)
    return {"dead": dead, "running": running, "queued": queued, "batch": parts, "workflow": workflow}


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


def _workflow(desk: Desk) -> str:
    """Push pages that are imported, checked and indexed one after the other, side by side. Some links are done."""
    client = Client(desk.settings)
    before = use_client(client)
    try:
        pages = [chain(import_page.s(n), check.s(), index.s()) for n in range(1, 6)]
        whole = batch(pages, name="catalogue", then=announce.si(), on_failure=alert.si())
        workflow = whole.push(id="catalogue-2026-11").id
    finally:
        use_client(before)
        client.close()
    for n in range(7):
        lease = desk.claim("catalogue").lease
        if n == 3:
            desk.run(desk.ledger.bury(lease, "ValueError", _failure("page 4 has no title")))
        else:
            desk.run(desk.ledger.commit([(lease, b"1", ())]))
    desk.claim("catalogue")
    return workflow


def _relays(desk: Desk) -> None:
    """Register two relays, as they report their tables. The second one cannot reach its broker."""
    for n, (table, waiting, age, broker) in enumerate(
        (("relier_outbox", 3, 240, "closed"), ("legacy_outbox", 1_284, 412_000, "open"))
    ):
        relay = f"relay.{300 + n}.shop"
        about = {"host": "db1", "pid": 300 + n, "version": "1.0.0", "tables": [table], "kinds": ["ledger", "celery"]}
        desk.run(desk.ledger.register(relay, LEASE_MS, json.dumps(about), Role.RELAY))
        depth = {"waiting": waiting, "exact": True, "oldest_age_ms": age, "dead_rows": 2 * n, "lag_ms": age}
        breakers = {"ledger": "closed", "celery": broker}
        report = {"outbox": [{"database": "orders", "table": table, "state": "answers", **depth, "breakers": breakers}]}
        counts = {"published": 18_204 - 9_000 * n, "failed": n, "dead": 2 * n, "deferred": 0, "outages": 31 * n}
        desk.run(
            desk.ledger.beat(relay, LEASE_MS, report=json.dumps({"rss_mb": 41, "draining": False, **counts, **report}))
        )


def _outcomes(desk: Desk) -> None:
    """Count what the shop did in the last hour: a bad deploy, corrected soon after."""
    now_ms = desk.run(desk.ledger.stats(" ")).now_ms
    for back in range(1, 60):
        at_ms = now_ms - 60_000 * back
        done, dead = 4_000 + 700 * (back * 37 % 11), 900 if 22 <= back <= 25 else 0
        counts = {"done 9": done, "done 13": done // 40, "dead 5": dead, "wait 3": done, "wait 12": done // 30}
        for period in (f"m{at_ms // 60_000}", f"h{at_ms // 3_600_000}"):
            for what, n in counts.items():
                key = desk.key("outcomes", period)
                desk.command("HINCRBY", key, f"{what}\nmail\nshop.mail.send", n)


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
