"""A task that is sent to every worker stays with Celery, because in the ledger one id is one task and runs once."""

from __future__ import annotations

import pytest

from tests.celery.conftest import Shop
from tests.support.fleet import wait_until

# With Redis kombu must be told that the exchange is a fanout; RabbitMQ knows.
SEND = "sell.apply_async(('tea',), queue='everyone', declare=[app.amqp.queues['everyone'].exchange])"


@pytest.mark.parametrize("producer", ["ours", "plain"])
def test_every_worker_runs_a_broadcast_task(shop: Shop, producer: str) -> None:
    shop.env["SHOP_BROADCAST"] = "1"
    for name in ("one", "two"):
        shop.worker("-P", "solo", "-n", f"{name}@shop")
    told = shop.run(SEND) if producer == "ours" else shop.plain(SEND)
    wait_until(lambda: len(shop.printed()) >= 2, 20, "two sales")
    assert ("unprotected" in told) == (producer == "ours")
    shop.run("sell.delay('milk')")
    wait_until(lambda: "sold milk" in shop.printed(), 20, "a sale by the ledger")
    assert sorted(shop.printed()) == ["sold milk", "sold tea", "sold tea"]
    assert shop.fleet.stats().counts["submitted"] == 1
