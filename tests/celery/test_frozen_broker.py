"""A frozen broker accepts connections and never answers. Adopted tasks are not affected, because the ledger is
elsewhere."""

from __future__ import annotations

import time

import pytest

from relier.states import State
from tests.celery.conftest import Shop
from tests.support.fleet import Member, wait_until
from tests.support.servers import Server

FROZEN_S = 20.0  # longer than all intervals at which Celery's main thread calls its broker
SOON_S = 3.0


@pytest.fixture
def frozen(broker: Server):
    """Return a function that freezes the broker. The broker continues when the test ends."""
    yield broker.freeze
    broker.thaw()


@pytest.mark.parametrize(
    "options",
    [("-c", "2"), ("-c", "2", "-E"), ("-c", "2", "-E", "-P", "threads"), ("-E", "-P", "solo")],
    ids=["prefork", "prefork with events", "threads with events", "solo with events"],
)
def test_adopted_tasks_continue_while_the_broker_is_frozen(shop: Shop, frozen, options) -> None:
    shop.worker(*options)
    producer = shop.fleet.python("-c", SELLS, cwd=shop.here, **shop.env)
    producer.wait_said("sold 3")
    frozen()
    began, slowest = time.monotonic(), 0.0
    while time.monotonic() - began < FROZEN_S:
        slowest = max(slowest, time_to_next_sale(shop))
    assert slowest < SOON_S
    producer.terminate()


def time_to_next_sale(shop: Shop) -> float:
    sold, asked = len(shop.printed()), time.monotonic()
    wait_until(lambda: len(shop.printed()) > sold, FROZEN_S, "the next task to run")
    return time.monotonic() - asked


SELLS = """
from tests.support.celery_shop_app import *
import threading
for number in range(10**6):
    sell.delay(number)
    print("sold", number, flush=True)
    threading.Event().wait(0.1)
"""


@pytest.fixture
def sent_events(shop: Shop) -> None:
    shop.env["SHOP_SENT_EVENTS"] = "1"


TIMED = """
import time
began = time.monotonic()
ids = [sell.delay(number).id for number in range(20)]
print(time.monotonic() - began, *ids)
"""


def test_a_producer_that_sends_events_does_not_wait_for_a_frozen_broker(shop: Shop, frozen, sent_events) -> None:
    frozen()
    took, *ids = shop.run(TIMED).splitlines()[-1].split()
    assert float(took) < SOON_S
    assert len([shop.fleet.get(task_id) for task_id in ids]) == 20


def test_events_that_waited_for_the_broker_are_sent_when_it_answers(shop: Shop, broker: Server, sent_events) -> None:
    listener = listen(shop)
    broker.freeze()
    producer = shop.fleet.python("-c", HOLDS, cwd=shop.here, **shop.env)
    producer.wait_said("sent")
    broker.thaw()
    listener.wait_said("heard task-sent", 3, 30)


def listen(shop: Shop) -> Member:
    listener = shop.fleet.python("-c", HEARS, cwd=shop.here, **shop.env)
    wait_until(lambda: shop.broker.command("PUBSUB", "NUMPAT"), 30, "the listener")
    return listener


HOLDS = """
from tests.support.celery_shop_app import *
import threading
for number in range(3):
    sell.delay(number)
print("sent", flush=True)
threading.Event().wait(60)
"""
HEARS = """
from tests.support.celery_shop_app import *
with app.connection() as connection:
    hear = lambda event: print("heard", event["type"], flush=True)
    app.events.Receiver(connection, handlers={"*": hear}).capture(limit=None, timeout=60)
"""


def test_the_last_events_of_a_process_are_sent_before_it_ends(shop: Shop, sent_events) -> None:
    listener = listen(shop)
    shop.run("for number in range(50): sell.delay(number)")
    listener.wait_said("heard task-sent", 50, 10)


EXHAUSTS = """
import threading
app.conf.broker_pool_limit = 1
held = app.producer_pool.acquire(block=True)  # as a message of another task does that waits for the broker
print(*[sell.delay(1).id, *[each.id for each in group(sell.s(2), sell.s(3))()]])
"""


def test_adopted_tasks_need_no_producer_of_the_pool(shop: Shop) -> None:
    ids = shop.run(f"from celery import group\n{EXHAUSTS}").split()
    assert len([shop.fleet.get(task_id) for task_id in ids]) == 3


def test_beat_needs_no_broker_for_adopted_tasks(shop: Shop, frozen) -> None:
    frozen()
    schedule = shop.fleet.folder / "schedule"
    shop.fleet.python(
        "-m", "celery", "-A", "tests.support.celery_shop_app", "beat", "-s", str(schedule), cwd=shop.here, **shop.env
    )
    wait_until(lambda: shop.fleet.stats().by_state()[State.QUEUED] >= 3, 30, "three tasks of beat's")
