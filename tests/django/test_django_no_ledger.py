"""`manage.py relier_relay --no-ledger`: rows go to Celery's broker, and no store is used or started."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Iterator

import pytest
from celery import Celery
from django.core.management import CommandError, call_command
from django.db import transaction

from relier import Client
from relier.celery.outbox import send_through
from relier.django.outbox import outbox
from tests.support.databases import Database
from tests.support.django_shop import DjangoShop
from tests.support.servers import wait_until

app = send_through(Celery("no_ledger", broker="memory://", set_as_current=False), outbox)
app.conf.task_default_queue = "no-ledger"


@app.task(name="no_ledger.mail", shared=False)
def mail(to: str) -> None: ...


@pytest.fixture
def shop(sqlite: Database, client: Client) -> Iterator[DjangoShop]:
    with DjangoShop(client, default=sqlite.url) as made:
        yield made.make_tables()


def sent() -> int:
    with app.connection_for_read() as broker, broker.SimpleQueue("no-ledger") as queue:
        return int(queue.qsize())


def test_a_relay_works_without_a_ledger(shop: DjangoShop) -> None:
    with transaction.atomic():
        mail.delay("ann")
    said = io.StringIO()

    def stop_when_sent() -> None:
        wait_until(sent, 30, "the message")
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=stop_when_sent)
    watcher.start()
    call_command("relier_relay", "--no-ledger", "--celery-app", f"{__name__}:app", stdout=said)
    watcher.join()
    assert "Relay stopped: 1 sent" in said.getvalue()
    assert shop.client.run(shop.client.ledger.stats()).workers == ()


def test_without_a_broker_there_is_nowhere_to_send_to(shop: DjangoShop) -> None:
    with pytest.raises(CommandError, match="leaves no target"):
        call_command("relier_relay", "--no-ledger")
