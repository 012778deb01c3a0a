"""Celery inside transactions: the same messages are sent as by plain Celery, if and when the transaction commits."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, Task, chain, chord, group
from celery.contrib.testing.worker import start_worker
from kombu import Exchange, Queue
from sqlalchemy.orm import Session

from relier.celery import install
from relier.celery.outbox import BrokerTarget, send_through
from relier.outbox.publish.target import SENT, Outage, SendFailed, Sent
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.row import CELERY, Row
from relier.states import State
from tests.support.outbox_shop import Shop
from tests.support.servers import Boot, Server, wait_until

WHEN = dt.datetime(2031, 5, 4, 3, 2, 1, 5, tzinfo=dt.UTC)
Call = dict[str, Any]

CASES: dict[str, Call] = {
    "plain": {},
    "keyword arguments": {"args": (), "kwargs": {"a": 1, "b": [2, {"c": None}]}},
    "datetime, date, time": {"args": (WHEN, WHEN.date(), WHEN.time())},
    "Decimal and UUID": {"args": (decimal.Decimal("1.10"), uuid.UUID(int=7))},
    "bytes": {"args": (b"\x00\xff",)},
    "tuples, sets by pickle": {"args": ((1, 2), {3}, {4: "four"}), "serializer": "pickle"},
    "yaml-like text": {"args": ("ünïcode ✓ 日本",)},
    "eta": {"eta": WHEN},
    "expires, a time": {"expires": WHEN},
    "priority": {"priority": 7},
    "queue": {"queue": "slow"},
    "exchange and routing key": {"exchange": "wires", "routing_key": "wire.a"},
    "headers": {"headers": {"tenant": "t1", "nested": {"a": 1}}},
    "compression": {"args": ("x" * 5000,), "compression": "zlib"},
    "links": {"link": ("shop.plain", (1,)), "link_error": ("shop.plain", (2,))},
    "limits and shadow": {"time_limit": 9, "soft_time_limit": 8, "shadow": "other", "ignore_result": True},
    "message properties": {"reply_to": "answers", "delivery_mode": 1, "expiration": 30},
}
COUNTED = {"countdown": 60, "expires": 90}


def plain_app(server: Server, name: str) -> Celery:
    app = Celery(name, broker=server.tcp_url)
    app.conf.update(
        task_serializer="json",
        accept_content=["json", "pickle"],
        task_default_queue=name,
        broker_transport_options={"global_keyprefix": f"{name}:"},
        task_queues=[
            Queue(name, Exchange(name), routing_key=name),
            Queue("slow", Exchange("slow"), routing_key="slow"),
            Queue("wire", Exchange("wires"), routing_key="wire.a"),
        ],
    )
    app.task(name="shop.plain")(plain)
    return app


def plain(*args: Any, **kwargs: Any) -> None:
    """Never run: only its messages are examined."""


@pytest.fixture
def app(server: Server, namespace: str) -> Iterator[Celery]:
    made = plain_app(server, f"celery{namespace}")
    received(made)  # declares its queues
    yield made
    made.close()


def signature(app: Celery, call: Call, **more: Any) -> Any:
    options = {**call, **more}
    for name in ("link", "link_error"):
        if name in options:
            task, args = options[name]
            options[name] = app.signature(task, args=args)
    return options


def received(app: Celery) -> list[Any]:
    """Remove all messages from all queues, and return them."""
    found = []
    with app.connection_for_read() as connection:
        for queue in app.amqp.queues.values():
            bound = queue(connection.default_channel)
            bound.declare()
            while (message := bound.get(no_ack=True)) is not None:
                found.append((queue.name, message))
    return found


def wire(queue: str, message: Any) -> dict[str, Any]:
    """Return the parts of a message that a worker can see."""
    properties = {name: value for name, value in message.properties.items() if name != "delivery_tag"}
    info = {name: value for name, value in (message.delivery_info or {}).items() if name != "delivery_tag"}
    return {
        "queue": queue,
        "body": bytes(message.body),
        "content": (message.content_type, message.content_encoding),
        "headers": message.headers,
        "properties": properties,
        "delivery": info,
    }


@pytest.mark.parametrize("case", CASES)
def test_the_relay_sends_the_message_of_plain_celery(case: str, pg_shop: Shop, app: Celery) -> None:
    call = {"args": (1, 2), "task_id": "11111111-1111-4111-8111-111111111111", **CASES[case]}
    app.tasks["shop.plain"].apply_async(**signature(app, call))
    ((queue, message),) = received(app)
    send_through(app, pg_shop.outbox)
    with Session(pg_shop.engine) as session, session.begin(), pg_shop.outbox.using(session):
        app.tasks["shop.plain"].apply_async(**signature(app, call))
        assert received(app) == []
    (row,) = pg_shop.rows()
    assert (row.kind, row.name, row.task_id) == (CELERY, "shop.plain", call["task_id"])
    assert pg_shop.relay(BrokerTarget(app, 5)).drain() == 1
    ((late_queue, late),) = received(app)
    expected, found = wire(queue, message), wire(late_queue, late)
    lives = [int(one["properties"].pop("expiration", 0)) for one in (expected, found)]
    assert lives[0] - 60_000 <= lives[1] <= lives[0]
    for one in (expected, found):
        one["headers"].pop("origin", None)
    assert found == expected


def test_countdown_and_expires_count_from_the_push(pg_shop: Shop, app: Celery) -> None:
    send_through(app, pg_shop.outbox)
    before = dt.datetime.now(dt.UTC)
    with Session(pg_shop.engine) as session, session.begin(), pg_shop.outbox.using(session):
        app.tasks["shop.plain"].apply_async(**COUNTED)
    after = dt.datetime.now(dt.UTC)
    pg_shop.relay(BrokerTarget(app, 5)).drain()
    ((_, message),) = received(app)
    for header, seconds in (("eta", 60), ("expires", 90)):
        at = dt.datetime.fromisoformat(message.headers[header])
        assert before <= at - dt.timedelta(seconds=seconds) <= after


def test_rolled_back_messages_are_never_sent_and_others_go_at_once(pg_shop: Shop, app: Celery) -> None:
    send_through(app, pg_shop.outbox)
    with contextlib.suppress(ZeroDivisionError), Session(pg_shop.engine) as session, session.begin():
        with pg_shop.outbox.using(session):
            app.tasks["shop.plain"].delay(1)
        raise ZeroDivisionError
    assert pg_shop.count() == 0
    app.tasks["shop.plain"].delay(2)
    assert len(received(app)) == 1


def test_a_canvas_can_be_sent_in_a_transaction(pg_shop: Shop, app: Celery) -> None:
    send_through(app, pg_shop.outbox)
    task = app.tasks["shop.plain"]
    with Session(pg_shop.engine) as session, session.begin(), pg_shop.outbox.using(session):
        chain(task.s(1), task.s(2)).delay()
        group(task.s(n) for n in range(3)).delay()
    assert pg_shop.relay(BrokerTarget(app, 5)).drain() == 4
    assert len(received(app)) == 4


def ends(app: Celery, shop: Shop) -> list[str]:
    """Register tasks that end inside a transaction. Return what they write when they run."""
    ran: list[str] = []

    @app.task(name="shop.note")
    def note(text: str) -> None:
        ran.append(text)

    @app.task(name="shop.retries", bind=True)
    def retries(self: Task) -> None:
        with Session(shop.engine) as session, session.begin(), shop.outbox.using(session):
            note.delay("rolled back")
            if self.request.retries == 0:
                raise self.retry(countdown=0, exc=ConnectionError("busy"))
            ran.append("retried")

    @app.task(name="shop.gives_way", bind=True)
    def gives_way(self: Task, to: Any) -> None:
        with Session(shop.engine) as session, session.begin(), shop.outbox.using(session):
            note.delay("rolled back")
            self.replace(self.app.signature(to))

    return ran


def test_the_next_run_of_a_task_does_not_depend_on_the_transaction_it_ends(pg_shop: Shop, app: Celery) -> None:
    """`retry` and `replace` raise. If their message were part of the transaction, it would be rolled back and the task
    lost."""
    app.conf.update(worker_hijack_root_logger=False, result_backend="cache+memory://")
    send_through(app, pg_shop.outbox)
    ran = ends(app, pg_shop)
    note = app.tasks["shop.note"]
    with start_worker(app, perform_ping_check=False, loglevel="warning"):  # it sets the level of the root logger
        app.tasks["shop.retries"].delay()
        app.tasks["shop.gives_way"].delay(note.si("one"))
        app.tasks["shop.gives_way"].delay(group(note.si("two"), note.si("three")))
        wait_until(lambda: len(ran) >= 4, 10, "four runs")
    assert sorted(ran) == ["one", "retried", "three", "two"]
    assert [row.name for row in pg_shop.rows()] == ["shop.note"]  # of the run that came to its end


def test_an_unreachable_broker_is_an_outage_and_a_bad_row_is_not(pg_shop: Shop, boot: Boot, namespace: str) -> None:
    server = boot()
    app = plain_app(server, f"celery{namespace}")
    app.conf.broker_transport_options |= {"socket_timeout": 1.0, "socket_connect_timeout": 1.0}
    send_through(app, pg_shop.outbox)
    with Session(pg_shop.engine) as session, session.begin(), pg_shop.outbox.using(session):
        app.tasks["shop.plain"].delay(1)
    relay = pg_shop.relay(BrokerTarget(app, 2))
    (row,) = relay._exchange(ClaimedBatch(relay.relay_id), 10).rows
    server.kill()
    (outcome,) = BrokerTarget(app, 2).publish([row])
    assert isinstance(outcome, Outage)
    server.start()
    (outcome,) = BrokerTarget(app, 2).publish([Row(1, "x", CELERY, "n", "q", b"garbage", 0, 1, 0)])
    assert isinstance(outcome, SendFailed)
    assert outcome.final
    app.close()


def claimed(shop: Shop, app: Celery, count: int, **options: Any) -> list[Row]:
    """Return the rows of `count` messages, as a relay claims them."""
    send_through(app, shop.outbox)
    with Session(shop.engine) as session, session.begin(), shop.outbox.using(session):
        for n in range(count):
            app.tasks["shop.plain"].apply_async((n,), **options)
    relay = shop.relay(BrokerTarget(app, 2))
    return list(relay._exchange(ClaimedBatch(relay.relay_id), count).rows)


def reads(app: Celery) -> int:
    """Return how often the broker has read from its clients."""
    with app.connection_for_read() as connection:
        return int(connection.default_channel.client.info("stats")["total_reads_processed"])


def test_messages_for_a_redis_broker_are_sent_in_one_pipeline(pg_shop: Shop, app: Celery) -> None:
    rows = claimed(pg_shop, app, 100, priority=3)
    target = BrokerTarget(app, 2)
    target.publish(rows[:1])  # connects
    before = reads(app)
    assert target.publish(rows[1:]) == [SENT] * 99
    assert reads(app) - before < 30
    target.close()
    assert [json.loads(message.body)[0] for _, message in received(app)] == [[n] for n in range(100)]


def test_one_message_that_cannot_be_sent_does_not_delay_the_others(pg_shop: Shop, app: Celery) -> None:
    """This covers a message that the broker refuses, and one that cannot be read."""
    rows = [*claimed(pg_shop, app, 2), *claimed(pg_shop, app, 1, queue="slow"), *claimed(pg_shop, app, 2)]
    rows.insert(2, Row(9, "x", CELERY, "n", "q", b"garbage", 0, 1, 0))
    with app.connection_for_write() as connection:
        connection.default_channel.client.set("slow", "no list")
    target = BrokerTarget(app, 2)
    outcomes = target.publish(rows)
    target.close()
    assert [type(one) for one in outcomes] == [Sent, Sent, SendFailed, SendFailed, Sent, Sent]
    assert [outcomes[2].final, outcomes[3].final] == [True, False]  # type: ignore[union-attr]
    with app.connection_for_write() as connection:
        connection.default_channel.client.delete("slow")
    assert len(received(app)) == 4


def test_an_adopted_apps_tasks_become_records_effectively_once(pg_shop: Shop, server: Server, namespace: str) -> None:
    app = plain_app(server, f"celery{namespace}")
    app.conf.result_backend = "cache+memory://"
    install(app, adopt=True, settings=pg_shop.client.settings, outbox=pg_shop.outbox)
    pg_shop.client.open()
    task = app.tasks["shop.plain"]
    with Session(pg_shop.engine) as session, session.begin(), pg_shop.outbox.using(session):
        sent = task.apply_async((1,), countdown=600, queue="slow")
        chord([task.s(1), task.s(2)], task.s(3)).apply_async()
        assert pg_shop.accepted() == 0
    assert pg_shop.relay().drain() == 3
    assert pg_shop.state(sent.id) is State.SCHEDULED
    assert received(app) == []
    outside = task.delay(5)
    assert pg_shop.state(outside.id) is State.QUEUED
    app.close()
