"""A broker that does not answer: unconfirmed messages do not count as sent, and the relay does not wait forever."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import Celery

from relier import Client
from relier.celery.outbox import BrokerTarget, send_through
from relier.outbox.publish.target import SENT, Outage
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.row import NewRow, Row
from tests.support.databases import Database
from tests.support.outbox_shop import Shop
from tests.support.rabbitmq import Rabbit
from tests.support.servers import Boot

TIMEOUT_S = 0.5


class Kept:
    """An outbox whose transaction is always open."""

    def __init__(self) -> None:
        self.rows: list[NewRow] = []

    def current(self) -> Any:
        return self

    def write(self, where: Any, rows: Any) -> None:
        self.rows += rows


def row_of(app: Celery) -> Row:
    """Return a message of the app, which had a connection before the target was made: health checks, other tasks."""
    with app.producer_pool.acquire(block=True) as producer:
        producer.connection.ensure_connection(max_retries=1)
    kept = Kept()
    send_through(app, kept)
    app.send_task("shop.plain")
    (new,) = kept.rows
    return Row(1, new.task_id, new.kind, new.name, new.queue, new.body, 0, 1, 0)


def check_send_timeout(shop: Shop, url: str, freeze: Callable[[], None], thaw: Callable[[], None]) -> None:
    """Check that a whole publish stays within the timeout, however many calls to the broker it makes."""
    app = Celery("frozen", broker=url, set_as_current=False)
    row = row_of(app)
    new = NewRow(row.task_id, row.kind, row.name, row.queue, "", row.body)
    relay = shop.relay(BrokerTarget(app, TIMEOUT_S), send_timeout=TIMEOUT_S, idle_time=0.001)
    shop.write(new)
    assert relay.drain() == 1
    shop.write(new)
    freeze()
    try:
        began = time.monotonic()
        batch = relay.turn(ClaimedBatch(relay.relay_id))
        took = time.monotonic() - began
    finally:
        thaw()
    assert TIMEOUT_S <= took < 3 * TIMEOUT_S
    assert isinstance(batch.outcomes[batch.rows[0].id], Outage)
    relay.turn(batch)
    assert shop.rows()[0].retries == 0
    app.close()


def check_frozen(url: str, freeze: Callable[[], None], thaw: Callable[[], None]) -> None:
    app = Celery("frozen", broker=url, set_as_current=False)
    row = row_of(app)
    target = BrokerTarget(app, TIMEOUT_S)
    assert target.publish([row]) == [SENT]
    freeze()
    try:
        (outcome,) = target.publish([row])
    finally:
        thaw()
    assert isinstance(outcome, Outage)
    assert target.publish([row]) == [SENT]
    target.close()
    app.close()


def test_redis_that_freezes_is_an_outage(boot: Boot) -> None:
    server = boot()
    check_frozen(server.tcp_url, server.freeze, server.thaw)


def test_send_timeout_is_for_the_whole_publish(sqlite: Database, client: Client, boot: Boot) -> None:
    server = boot()
    with Shop(sqlite.url, client) as shop:
        check_send_timeout(shop, server.tcp_url, server.freeze, server.thaw)


@contextmanager
def running_rabbit() -> Iterator[Rabbit]:
    node = Rabbit()
    try:
        yield node.start()
    finally:
        node.end()


@pytest.mark.engines
@pytest.mark.xdist_group("rabbitmq")
def test_rabbitmq_that_freezes_is_an_outage(sqlite: Database, client: Client) -> None:
    """Without confirmations, every message that the socket accepts would count as sent."""
    with running_rabbit() as node:
        if not node.own:
            pytest.skip("the node is not ours to freeze")
        process = node._process
        assert process is not None

        def tell(what: signal.Signals) -> None:
            os.killpg(process.pid, what)

        check_frozen(node.url, lambda: tell(signal.SIGSTOP), lambda: tell(signal.SIGCONT))
        with Shop(sqlite.url, client) as shop:
            check_send_timeout(shop, node.url, lambda: tell(signal.SIGSTOP), lambda: tell(signal.SIGCONT))


def test_the_apps_own_timeouts_hold_where_they_are_shorter() -> None:
    app = Celery("short", broker="redis://localhost", set_as_current=False)
    app.conf.broker_transport_options = {"socket_timeout": 3.0, "socket_connect_timeout": 30.0, "global_keyprefix": "x"}
    options = BrokerTarget(app, 10.0)._connection.transport_options
    assert (options["socket_timeout"], options["socket_connect_timeout"]) == (3.0, 10.0)
    assert options["global_keyprefix"] == "x"
    assert app.conf.broker_transport_options["socket_connect_timeout"] == 30.0
