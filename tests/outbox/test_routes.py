"""One relay with several targets: a target that is down charges no retries to its own rows, and does not delay the
rows of other targets."""

from __future__ import annotations

from typing import Any

import pytest

from relier.errors import RedisConnectionError
from relier.ledger.records import new_task_id
from relier.outbox.publish.target import SENT, Outage
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.relay.metrics import RelayCollector
from relier.outbox.row import NewRow
from tests.support.outbox_shop import Scripted, Shop

AWAY = Outage(RedisConnectionError("away"))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def broker(*plan: Any) -> Scripted:
    """A target for Celery's messages."""
    target = Scripted(*plan)
    target.kind = "celery"
    return target


def send_mail(shop: Shop) -> str:
    row = NewRow(new_task_id(), "celery", "mail", "celery", "", b"x")
    shop.write(row)
    return row.task_id


def retries_of(shop: Shop, kind: str) -> list[tuple[int, int]]:
    return [(row.retries, row.dead) for row in shop.rows() if row.kind == kind]


def test_rows_for_an_unreachable_target_use_up_no_retries_while_others_are_sent(shop: Shop) -> None:
    clock = Clock()
    relay = shop.relay(Scripted(SENT), broker(AWAY), clock=clock, max_retries=1)
    send_mail(shop)
    for turn in range(5):
        shop.place(turn)
        shop.change(due_at=0)
        clock.now += 31
        relay._exchange(relay.turn(ClaimedBatch(relay.relay_id)), 0)
    assert relay.counts.published == 5
    assert relay.counts.outages == 5
    assert retries_of(shop, "celery") == [(0, 0)]


def test_an_unreachable_target_does_not_hold_up_the_others(shop: Shop) -> None:
    clock = Clock()
    mails = broker(AWAY)
    relay = shop.relay(Scripted(SENT), mails, clock=clock)
    for _ in range(20):
        send_mail(shop)
    shop.place(1)
    assert relay.drain() == 1
    assert len(mails.seen) == 2
    assert {kind: one.state for kind, one in relay.breakers.items()} == {"ledger": "closed", "celery": "open"}
    shop.place(2)
    assert relay.drain() == 1
    assert len(mails.seen) == 2
    clock.now += 31  # one of them tries, beside all there is for the other
    shop.place(*range(3, 10))
    shop.change(due_at=0)
    batch = relay.turn(ClaimedBatch(relay.relay_id))
    assert sorted(row.kind for row in batch.rows) == ["celery"] + ["ledger"] * 7
    assert len(mails.seen) == 3
    assert relay.breakers["celery"].state == "open"
    relay._exchange(batch, 0)
    assert retries_of(shop, "celery") == [(0, 0)] * 20
    assert retries_of(shop, "ledger") == []


@pytest.mark.parametrize("threads", [1, 3])
def test_a_batch_continues_with_the_rows_of_a_target_that_answers(shop: Shop, threads: int) -> None:
    """The rows were claimed together, and the breaker opens between them."""
    for order in range(10):
        send_mail(shop)
        shop.place(order)
    mails = broker(AWAY)
    relay = shop.relay(Scripted(SENT), mails, publish_concurrency=threads)
    assert relay.drain() == 10
    assert len(mails.seen) <= 4
    assert retries_of(shop, "celery") == [(0, 0)] * 10


def test_a_row_is_charged_one_retry_each_time_others_are_sent(shop: Shop) -> None:
    """During a long outage, a row is not charged again just because it was at fault once."""
    clock = Clock()
    unlucky = shop.place(0)[0]
    shop.place(1)
    answers = {"well": True}
    target = Scripted(lambda row: SENT if answers["well"] and row.task_id != unlucky else AWAY)
    relay = shop.relay(target, clock=clock, max_retries=2)
    assert relay.drain() == 1
    answers["well"] = False
    for _ in range(7):
        shop.change(due_at=0)
        clock.now += 31
        relay._exchange(relay.turn(ClaimedBatch(relay.relay_id)), 0)
    assert retries_of(shop, "ledger") == [(1, 0)]


def test_metrics_show_the_breaker_of_each_target(shop: Shop) -> None:
    relay = shop.relay(Scripted(SENT), broker(AWAY))
    send_mail(shop)
    send_mail(shop)
    relay.drain()
    (states,) = (one for one in RelayCollector(relay).collect() if one.name == "relier_outbox_breaker_state")
    assert {sample.labels["kind"]: sample.value for sample in states.samples} == {"ledger": 0, "celery": 2}
