"""Rows of an outbox keep the run-time limits of the call that wrote them."""

from __future__ import annotations

from relier import Limit, rl_task
from tests.support.outbox_shop import Shop


@rl_task(name="shop.build", limits=[Limit(concurrency=1, per="order:{order}"), Limit(rate="10/s")])
def build(order: int) -> int:
    return order


def test_a_task_from_an_outbox_is_limited(shop: Shop) -> None:
    with shop.session() as session, session.begin():
        for order in (1, 1, 2):
            build.push_in(session, order)
    assert shop.relay().drain() == 3
    page = shop.client.run(shop.client.ledger.limits())
    assert {key.key: key.live for key in page.keys} == {"order:1": 2, "order:2": 1, "task:shop.build": 3}
    (queue,) = shop.client.run(shop.client.ledger.stats()).queues
    assert (queue.ready, queue.held_back) == (2, 1)
