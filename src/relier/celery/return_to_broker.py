"""The way back: what waits in the ledger becomes messages of the broker again, as they were sent.

Queues are paused first, so that no worker takes what is being sent; what runs is left to come to its end. A message
goes out before its record is cancelled: if this is cut short, some may be sent twice, none is lost. `@rl_task`s and
chords that wait for their parts stay: no plain worker could run them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kombu.exceptions import OperationalError

from relier.celery.adoption import Adoption
from relier.celery.messages import Message, read_message
from relier.celery.sending.publish import publish_message
from relier.codec import decode
from relier.envelope import open_envelope
from relier.errors import LedgerError, VersionConflictError
from relier.ledger.pages import read_stats
from relier.ledger.records import Record
from relier.states import State

AT_ONCE = 100
BROKER_S = 10.0


@dataclass
class Drained:
    """What came of it: how many went to the broker, which are no messages of Celery's, how many run still."""

    sent: int = 0
    kept: list[str] = field(default_factory=list)
    running: int = 0


def drain(adoption: Adoption, *, dry_run: bool = False) -> Drained:
    """Send everything that waits."""
    drained = Drained()
    if not dry_run:
        _pause(adoption)
    for record in list(_waiting(adoption)):
        message = message_of(adoption, record.id)
        if message is None:
            drained.kept.append(record.id)
            continue
        if not dry_run:
            _send(adoption.app, message, record.queue)
            with contextlib.suppress(LedgerError):
                adoption.client.run(adoption.client.ledger.cancel(record.id, record.version))
        drained.sent += 1
    drained.running = read_stats(adoption.client.run, adoption.client.ledger).by_state()[State.RUNNING]
    return drained


def see_broker(app: Any) -> None:
    """Raises one of `broker_errors` where the broker does not answer: before a queue is paused for nothing."""
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=BROKER_S)


def broker_errors(app: Any) -> tuple[type[Exception], ...]:
    """What the app's transport raises when the broker is away."""
    return (OperationalError, OSError, *app.connection_for_write().connection_errors)


def _pause(adoption: Adoption) -> None:
    client = adoption.client
    for queue in read_stats(client.run, client.ledger).queues:
        if not queue.paused:
            with contextlib.suppress(VersionConflictError):  # somebody else has
                client.run(client.ledger.pause(queue.queue, queue.pause_version))


def _waiting(adoption: Adoption) -> Iterator[Record]:
    client = adoption.client
    places = [("ready", queue.queue) for queue in read_stats(client.run, client.ledger).queues]
    for index, of in [*places, ("due", "")]:
        cursor: str | None = None
        while True:
            page = client.run(client.ledger.list(index, of, cursor=cursor, most=AT_ONCE))
            yield from page.records
            cursor = page.cursor
            if cursor is None:
                break


def message_of(adoption: Adoption, task_id: str) -> Message | None:
    """The message a record keeps; None where it keeps something else."""
    client = adoption.client
    task = client.run(client.ledger.get(task_id))
    if task.payload is None:
        return None
    envelope = open_envelope(task.payload, task_id=task_id, name=task.record.name, keyring=client.keyring)
    match decode(envelope.body):
        case [[{"headers": {"task": str() as name, "id": _}, "body": _} as given], _] if not name.startswith("relier."):
            return read_message(given)
    return None


def _send(app: Any, message: Message, queue: str) -> None:
    message.routing_key = message.routing_key or queue
    with app.producer_pool.acquire(block=True) as producer:
        publish_message(producer, message, [app.amqp.queues[queue]])
