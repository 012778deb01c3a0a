"""Return waiting tasks from the ledger to the broker, as the messages they were, for a return to plain Celery.

Queues are paused first, so that no worker claims a task that is being sent. Running tasks are left to end. A message is
sent before its record is cancelled: if the command is interrupted, some tasks may be sent twice, but none is lost.
`@rl_task`s and chords that wait for their parts stay in the ledger, because a plain worker could not run them.
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
from relier.ledger.pages import read_stats, waiting_places
from relier.ledger.records import Record
from relier.states import State

PAGE_SIZE = 100
CONNECT_TIMEOUT_S = 10.0


@dataclass
class Drained:
    """Count the tasks that were sent to the broker and those that still run, and list those that stayed.

    A task stays if its record holds no Celery message.
    """

    sent: int = 0
    kept: list[str] = field(default_factory=list)
    running: int = 0


def drain(adoption: Adoption, *, dry_run: bool = False) -> Drained:
    """Send all waiting tasks to the broker. With `dry_run`, only count them."""
    drained = Drained()
    if not dry_run:
        _pause(adoption)
    for record in {record.id: record for record in _waiting(adoption)}.values():  # a task may be listed twice
        message = stored_message(adoption, record.id)
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
    """Raise one of `broker_errors` if the broker does not answer, before any queue is paused."""
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=CONNECT_TIMEOUT_S)


def broker_errors(app: Any) -> tuple[type[Exception], ...]:
    """Return the errors that the app's transport raises when the broker is unreachable."""
    return (OperationalError, OSError, *app.connection_for_write().connection_errors)


def _pause(adoption: Adoption) -> None:
    client = adoption.client
    for queue in read_stats(client.run, client.ledger).queues:
        if not queue.paused:
            with contextlib.suppress(VersionConflictError):  # somebody else has paused it
                client.run(client.ledger.pause(queue.queue, queue.pause_version))


def _waiting(adoption: Adoption) -> Iterator[Record]:
    client = adoption.client
    queues = [queue.queue for queue in read_stats(client.run, client.ledger).queues]
    for index, of in waiting_places(client.run, client.ledger, queues):
        cursor: str | None = None
        while True:
            page = client.run(client.ledger.list(index, of, cursor=cursor, most=PAGE_SIZE))
            yield from page.records
            cursor = page.cursor
            if cursor is None:
                break


def stored_message(adoption: Adoption, task_id: str) -> Message | None:
    """Return the message that a record holds, or None if it holds something else."""
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
