"""A store that was emptied: receipts say so instead of `expired`, and the log says it once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from relier import (
    Client,
    Settings,
    StoreEmptiedError,
    SyncTaskReceipt,
    TaskNotFoundError,
    TaskState,
    rl_task,
    use_client,
)
from tests.support.servers import Boot, Server

pytestmark = pytest.mark.anyio


@rl_task(name="tests.submit.emptied.note")
async def note(text: str) -> None: ...


@pytest.fixture
def own(boot: Boot) -> Server:
    return boot()


@pytest.fixture
def client(own: Server, settings: Settings) -> Iterator[Client]:
    client = Client(settings.replace(redis_url=own.url, admission_limit=0))
    use_client(client)
    yield client
    use_client(None)
    client.close()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.ERROR]


async def test_every_method_of_a_receipt_reports_the_emptied_store(client: Client, own: Server) -> None:
    receipt, many = note.push("a"), note.push_many([("b",)] * 2_500)
    awaited = [await note.apush("c"), *await note.apush_many([("d",)])]
    own.command("FLUSHALL")
    for one in (receipt, many[0], many[-1]):
        for ask in (one.state, one.result, lambda one=one: one.result(timeout=30), one.info, one.cancel, one.replay):
            with pytest.raises(StoreEmptiedError, match=f"task {one.id} is lost: the store was emptied or replaced"):
                ask()
    for other in awaited:
        for question in (other.state, other.result, other.info, other.cancel, other.replay):
            with pytest.raises(StoreEmptiedError):
                await question()
    with pytest.raises(TaskNotFoundError):  # code that handled the former also handles this
        receipt.info()
    await client.aclose()


async def test_an_emptied_store_is_logged_once_per_process(
    client: Client, own: Server, caplog: pytest.LogCaptureFixture
) -> None:
    before = note.push("a")
    own.command("FLUSHALL")
    after: list[Any] = [note.push("b"), await note.apush("c"), *note.push_many([("d",)] * 3)]
    with pytest.raises(StoreEmptiedError):
        before.state()
    (said,) = errors(caplog)
    assert "the store was emptied or replaced" in said
    assert client.settings.namespace in said
    assert after[0].state() is TaskState.QUEUED
    assert await after[1].state() is TaskState.QUEUED
    await client.aclose()


def test_tasks_pushed_after_the_loss_expire_as_usual(client: Client, own: Server) -> None:
    note.push("a")
    own.command("FLUSHALL")
    receipt = note.push("b")
    client.run(client.ledger.cancel(receipt.id, 1))
    client.run(client.ledger.discard(receipt.id, 2))
    assert receipt.state() is TaskState.EXPIRED


def test_another_process_gave_the_emptied_store_its_mark(
    client: Client, own: Server, caplog: pytest.LogCaptureFixture
) -> None:
    before = note.push("a")
    own.command("FLUSHALL")
    other = Client(client.settings)
    other.open()
    other.close()
    with pytest.raises(StoreEmptiedError, match=f"now it is {other.birth.mark}"):
        before.state()
    assert client.birth.mark == other.birth.mark
    assert len(errors(caplog)) == 1, "and not of the other, which remembers nothing"


def test_a_restart_does_not_change_the_birth_mark(
    client: Client, own: Server, caplog: pytest.LogCaptureFixture
) -> None:
    receipt = note.push("a")
    own.stop()
    own.start()
    assert receipt.state() is TaskState.QUEUED
    assert note.push("b").state() is TaskState.QUEUED
    assert not errors(caplog)


def test_a_receipt_of_an_unconfirmed_push_keeps_waiting(client: Client, own: Server) -> None:
    """A receipt made from an id alone, or of a row in an outbox: its task may still arrive."""
    receipt: SyncTaskReceipt[Any] = note.sync_receipt("later")
    note.push("a")
    own.command("FLUSHALL")
    assert receipt.state() is TaskState.NOT_FOUND
