"""Extend `revoke` and `purge` to the ledger: tasks that wait there are cancelled at once, without any worker."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from celery.app.task import Context
from celery.exceptions import TaskRevokedError
from celery.signals import task_revoked
from kombu.serialization import prepare_accept_content
from kombu.utils.functional import maybe_list

from relier.celery.canvas.parts import PART_TASK, failed_part, part_id
from relier.celery.internal import is_internal
from relier.celery.messages import LedgerMessage, Message, internal_message, read_message, submission_of
from relier.celery.operational import as_operational_errors
from relier.celery.options import REPORTED_BY_WORKER
from relier.celery.sending.collect import ADDED
from relier.codec import decode
from relier.codec.keyring import Keyring
from relier.envelope import open_envelope
from relier.errors import IllegalMoveError, RelierError, StoreError, TaskNotFoundError, VersionConflictError
from relier.ledger.defaults import LIST_PAGE
from relier.ledger.pages import waiting_places
from relier.ledger.records import Operated, Record, Submission, Task
from relier.settings import Settings
from relier.states import ENDED, State

if TYPE_CHECKING:
    from relier.celery.adoption import Adoption

CANCEL_TRIES = 5
PAGE = LIST_PAGE  # how many tasks a purge reads and cancels at once
SAFE_CONTENT = ("json", "yaml", "msgpack")  # formats that run no code when they are decoded


def control_class(base: type[Any], adoption: Adoption) -> type[Any]:
    """Return a subclass of the app's Control class whose revokes and purges also reach the ledger."""

    class LedgerControl(base):
        def revoke(
            self, task_id: Any, destination: Any = None, terminate: bool = False, *args: Any, **kwargs: Any
        ) -> Any:
            for each in maybe_list(task_id):
                with as_operational_errors():
                    cancelled = cancel(adoption, each, running=terminate)
                if cancelled is not None:
                    report_revoked(self.app, each, cancelled)
            return super().revoke(task_id, destination, terminate, *args, **kwargs)

        def purge(self, connection: Any = None) -> int:
            """Purge the broker, then the ledger: a worker may still accept messages from the broker.

            `celery worker --purge` calls this, too.
            """
            purged = int(super().purge(connection))
            with as_operational_errors():
                return purged + purge(adoption, set(self.app.amqp.queues.consume_from))

        discard_all = purge

    return LedgerControl


def cancel(adoption: Adoption, task_id: str, *, running: bool) -> Message | None:
    """Cancel a waiting task and return its message. With `running`, also ask a running task to stop, and return None.

    A waiting member of a chord is left to the worker that claims it, because the chord needs its failure.
    """
    client = adoption.client
    for _ in range(CANCEL_TRIES):
        try:
            task = next((each for each in _records_of(adoption, task_id) if each.record.state not in ENDED), None)
            if task is None:
                return None
            waits = task.record.state is not State.RUNNING
            message = message_in(task, client.keyring)
            if (waits and chord_of(message, adoption.app.conf.accept_content)) or not (waits or running):
                return None
            client.run(client.ledger.cancel(task.record.id, task.record.version))
        except VersionConflictError:
            continue
        except (TaskNotFoundError, IllegalMoveError):
            return None
        return message if waits else None
    return None


def _records_of(adoption: Adoption, task_id: str) -> Iterator[Task]:
    """Yield the records of a task: the first, and one for each time the task was replaced."""
    client = adoption.client
    nesting = 0
    while True:
        yield client.run(client.ledger.get(f"{task_id}.{nesting}" if nesting else task_id))
        nesting += 1


def message_in(task: Task, keyring: Keyring) -> Message:
    """Return the message in a record. For an `@rl_task` or an unreadable record, return one with name and id only."""
    record = task.record
    try:
        opened = open_envelope(task.payload or b"", task_id=record.id, name=record.name, keyring=keyring)
        args, _ = decode(opened.body)
        return read_message(args[0])
    except (RelierError, TypeError, ValueError, LookupError):
        return Message({"task": record.name, "id": record.id}, {}, "", "", "")


def chord_of(message: Message, accept: Sequence[str]) -> Any:
    """Return the body of the chord that the message's task is a member of, or None."""
    if not message.content_type:
        return None
    received = LedgerMessage(message, prepare_accept_content(accept), redelivered=False)
    try:
        _, _, embed = received.decode()
    except Exception:  # noqa: BLE001 - a serializer may raise anything; an unreadable message cannot run either
        return None
    return (embed or {}).get("chord")


def part_of_cancelled(task: Task, settings: Settings, keyring: Keyring) -> Submission | None:
    """Return the task that reports the cancellation of a waiting member to its chord. For callers without the app.

    Return None if there is no chord, or if the message cannot be read without the app.
    """
    message = message_in(task, keyring)
    body = chord_of(message, SAFE_CONTENT)
    if not body or not body.get("chord_size"):
        return None
    headers, record = message.headers, task.record
    value = base64.b64encode(failed_part(headers["id"], TaskRevokedError("revoked"))).decode()
    root = headers.get("root_id")
    more = (0, True, 1) if body.get(ADDED) else ()
    args = (value, body, headers.get("group"), headers.get("group_index") or 0, headers["id"], root, *more)
    part = internal_message(PART_TASK, part_id(record.id), args, root, headers["id"])
    return submission_of(
        part, record.queue, record.spec.priority, record.spec.durability, settings, keyring, REPORTED_BY_WORKER
    )


def report_revoked(app: Any, task_id: str, message: Message) -> None:
    """Write the state and send the event and the signal of a task that was revoked in the ledger, without a worker."""
    about = {"terminated": False, "signum": None, "expired": False}
    request = Context(message.headers)
    if not message.headers.get("ignore_result"):
        app.backend.mark_as_revoked(task_id, "revoked", request=request)
    with app.events.default_dispatcher() as dispatcher:
        dispatcher.send("task-revoked", uuid=task_id, **about)
    task_revoked.send(sender=app.tasks.get(message.task, message.task), request=request, **about)


# --- purge ------------------------------------------------------------------------------------------------------------


def purge(adoption: Adoption, queues: Collection[str]) -> int:
    """Cancel the tasks that wait in these queues, due or not, and return how many were cancelled.

    A task that a worker claims meanwhile still runs. A chord gets a failed part for each member that was cancelled.
    """
    return sum(_cancel(adoption, page) for page in _waiting(adoption, queues))


def _waiting(adoption: Adoption, queues: Collection[str]) -> Iterator[list[Record]]:
    client = adoption.client
    for index, of in waiting_places(client.run, client.ledger, queues):
        cursor, more = None, True
        while more:
            page = client.run(client.ledger.list(index, of, cursor=cursor, most=PAGE))
            in_queues = (record for record in page.records if record.queue in queues)
            yield [record for record in in_queues if _may_be_purged(adoption, record.name)]
            cursor, more = page.cursor, page.cursor is not None


def _may_be_purged(adoption: Adoption, name: str) -> bool:
    """Return whether a purge cancels tasks of this name. Relier's internal tasks record past events and stay."""
    return adoption.covers(name) and not is_internal(name)


def _cancel(adoption: Adoption, records: Sequence[Record]) -> int:
    client = adoption.client
    members = _possible_chord_members(adoption, records)
    calls = (client.ledger.cancel(record.id, record.version) for record in records)
    answers: list[Operated | RelierError] = client.sync_store.run_many(calls)
    cancelled = {
        record.id
        for record, answer in zip(records, answers, strict=True)
        if isinstance(answer, Operated) and answer.state == State.CANCELLED  # the first request may have had no answer
    }
    for task_id in cancelled & members.keys():
        part = part_of_cancelled(members[task_id], client.settings, client.keyring)
        if part is not None:
            adoption.submit(part)
    _raise_store_error(answers)
    return len(cancelled)


def _possible_chord_members(adoption: Adoption, records: Sequence[Record]) -> dict[str, Task]:
    """Return the tasks that may be members of a chord, with their messages."""
    client = adoption.client
    wanted = [record.id for record in records if record.spec.max_resurrections is not None]
    found: list[Task | RelierError] = client.sync_store.run_many(client.ledger.get(task_id) for task_id in wanted)
    _raise_store_error(found)
    return {task.record.id: task for task in found if isinstance(task, Task)}


def _raise_store_error(answers: Sequence[Any]) -> None:
    """Raise the first error of the store. Any other error means that the task has changed in the meantime."""
    outage = next((answer for answer in answers if isinstance(answer, StoreError)), None)
    if outage is not None:
        raise outage
