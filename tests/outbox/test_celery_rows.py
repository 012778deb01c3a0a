"""Celery's messages inside transactions, for an app without the ledger: the same messages are sent as by plain
Celery."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from relier.celery.outbox import BrokerTarget, send_through
from tests.support.outbox_shop import Shop, failing


def app_of(serializer: str) -> Any:
    app = Celery("rows", broker="memory://", set_as_current=False)
    app.conf.update(task_serializer=serializer, accept_content=["json", "pickle"])

    @app.task(name="rows.add", shared=False)
    def add(x: Any, y: Any) -> None: ...

    return app


def received(app: Any) -> list[Any]:
    """Return the messages in the queue, as a worker would receive them."""
    found = []
    with app.connection_for_read() as connection, connection.SimpleQueue("celery") as queue:
        while queue.qsize():
            message = queue.get_nowait()
            message.ack()
            kept = {name: value for name, value in message.headers.items() if name != "id"}
            found.append((message.body, message.content_type, {**kept, "root_id": None}))
    return found


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_a_row_holds_the_message_of_plain_celery(shop: Shop, serializer: str) -> None:
    how = {"args": (1, b"two" if serializer == "pickle" else "two"), "priority": 3, "headers": {"of": "mine"}}
    plain = app_of(serializer)
    plain.tasks["rows.add"].apply_async(**how)
    (expected,) = received(plain)

    app = send_through(app_of(serializer), shop.outbox)
    with shop.session() as session, session.begin(), shop.outbox.using(session):
        sent = app.tasks["rows.add"].apply_async(**how)
    with failing(), shop.session() as session, session.begin(), shop.outbox.using(session):
        app.tasks["rows.add"].delay(3, 4)
        raise ZeroDivisionError
    assert received(app) == []
    assert [row.task_id for row in shop.rows()] == [sent.id]
    assert shop.relay(BrokerTarget(app, 10)).drain() == 1
    assert received(app) == [expected]
