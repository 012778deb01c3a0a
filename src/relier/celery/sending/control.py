"""`revoke` and `purge` reach the ledger: what waits there is cancelled at once, whichever worker would have got it."""

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
from relier.celery.options import TELLS_ITSELF
from relier.celery.sending.collect import ADDED
from relier.codec import decode
from relier.envelope import open_envelope
from relier.errors import IllegalMoveError, RelierError, StoreError, TaskNotFoundError, VersionConflictError
from relier.keyring import Keyring
from relier.ledger.records import Operated, Record, Submission, Task
from relier.settings import Settings
from relier.states import ENDED, State

if TYPE_CHECKING:
    from relier.celery.adoption import Adoption

CANCEL_TRIES = 5
PAGE = 1000  # of tasks that are purged
PLAIN_CONTENT = ("json", "yaml", "msgpack")  # what cannot do anything when it is read


def control_class(base: type[Any], adoption: Adoption) -> type[Any]:
    """The app's own Control class, whose revokes and purges are the ledger's, too."""

    class LedgerControl(base):
        def revoke(
            self, task_id: Any, destination: Any = None, terminate: bool = False, *args: Any, **kwargs: Any
        ) -> Any:
            for each in maybe_list(task_id):
                with as_operational_errors():
                    cancelled = cancel(adoption, each, running=terminate)
                if cancelled is not None:
                    announce(self.app, each, cancelled)
            return super().revoke(task_id, destination, terminate, *args, **kwargs)

        def purge(self, connection: Any = None) -> int:
            """Also what `celery worker --purge` calls. The broker's messages go first: a worker may take them in."""
            purged = int(super().purge(connection))
            with as_operational_errors():
                return purged + purge(adoption, set(self.app.amqp.queues.consume_from))

        discard_all = purge

    return LedgerControl


def cancel(adoption: Adoption, task_id: str, *, running: bool) -> Message | None:
    """Cancel what waits, and answer with it; with `running`, ask what runs to end, too. A part of a chord is left to
    the worker that gets it: the chord has to hear of it."""
    client = adoption.client
    for _ in range(CANCEL_TRIES):
        try:
            task = next((one for one in _under(adoption, task_id) if one.record.state not in ENDED), None)
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


def _under(adoption: Adoption, task_id: str) -> Iterator[Task]:
    """The records of a task: one, and one more for each time it was replaced."""
    client = adoption.client
    nesting = 0
    while True:
        yield client.run(client.ledger.get(f"{task_id}.{nesting}" if nesting else task_id))
        nesting += 1


def message_in(task: Task, keyring: Keyring) -> Message:
    """The message of a record; of an `@rl_task`, and of one that cannot be read, as much as is known."""
    record = task.record
    try:
        opened = open_envelope(task.payload or b"", task_id=record.id, name=record.name, keyring=keyring)
        args, _ = decode(opened.body)
        return read_message(args[0])
    except (RelierError, TypeError, ValueError, LookupError):
        return Message({"task": record.name, "id": record.id}, {}, "", "", "")


def chord_of(message: Message, accept: Sequence[str]) -> Any:
    """The body of the chord it is a part of, if it is."""
    if not message.content_type:
        return None
    received = LedgerMessage(message, prepare_accept_content(accept), redelivered=False)
    try:
        _, _, embed = received.decode()
    except Exception:  # noqa: BLE001 - a serializer may raise anything; what cannot be read cannot be run either
        return None
    return (embed or {}).get("chord")


def part_of_cancelled(task: Task, settings: Settings, keyring: Keyring) -> Submission | None:
    """What brings its chord the news that a waiting task was cancelled, by a person who has no app at hand; None where
    there is no chord, or none that can be read without one."""
    message = message_in(task, keyring)
    body = chord_of(message, PLAIN_CONTENT)
    if not body or not body.get("chord_size"):
        return None
    headers, record = message.headers, task.record
    value = base64.b64encode(failed_part(headers["id"], TaskRevokedError("revoked"))).decode()
    root = headers.get("root_id")
    more = (0, True, 1) if body.get(ADDED) else ()
    args = (value, body, headers.get("group"), headers.get("group_index") or 0, headers["id"], root, *more)
    part = internal_message(PART_TASK, part_id(record.id), args, root, headers["id"])
    return submission_of(
        part, record.queue, record.spec.priority, record.spec.durability, settings, keyring, TELLS_ITSELF
    )


def announce(app: Any, task_id: str, message: Message) -> None:
    """What waited in the ledger was revoked here, by no worker: so its state, event and signal come from here."""
    about = {"terminated": False, "signum": None, "expired": False}
    request = Context(message.headers)
    if not message.headers.get("ignore_result"):
        app.backend.mark_as_revoked(task_id, "revoked", request=request)
    with app.events.default_dispatcher() as dispatcher:
        dispatcher.send("task-revoked", uuid=task_id, **about)
    task_revoked.send(sender=app.tasks.get(message.task, message.task), request=request, **about)


# --- purge ------------------------------------------------------------------------------------------------------------


def purge(adoption: Adoption, queues: Collection[str]) -> int:
    """Cancel the tasks that wait in these queues, due or not, and return how many. A task that a worker claims
    meanwhile runs. A chord is told of each member that will not run."""
    return sum(_cancel(adoption, page) for page in _waiting(adoption, queues))


def _waiting(adoption: Adoption, queues: Collection[str]) -> Iterator[list[Record]]:
    client = adoption.client
    for index, of in (*(("ready", queue) for queue in queues), ("due", "")):
        cursor, more = None, True
        while more:
            page = client.run(client.ledger.list(index, of, cursor=cursor, most=PAGE))
            yield [record for record in page.records if record.queue in queues and _is_purged(adoption, record.name)]
            cursor, more = page.cursor, page.cursor is not None


def _is_purged(adoption: Adoption, name: str) -> bool:
    """Tasks of Relier's own hold what has happened: a purge does not undo that."""
    return adoption.covers(name) and not is_internal(name)


def _cancel(adoption: Adoption, records: Sequence[Record]) -> int:
    client = adoption.client
    members = _members(adoption, records)
    calls = (client.ledger.cancel(record.id, record.version) for record in records)
    answers: list[Operated | RelierError] = client.sync_store.run_many(calls)
    cancelled = {
        record.id
        for record, answer in zip(records, answers, strict=True)
        if isinstance(answer, Operated) and answer.state == State.CANCELLED  # perhaps at the second try
    }
    for task_id in cancelled & members.keys():
        part = part_of_cancelled(members[task_id], client.settings, client.keyring)
        if part is not None:
            adoption.submit(part)
    _raise_outage(answers)
    return len(cancelled)


def _members(adoption: Adoption, records: Sequence[Record]) -> dict[str, Task]:
    """The tasks that may be members of a chord, with their messages."""
    client = adoption.client
    wanted = [record.id for record in records if record.spec.max_resurrections is not None]
    found: list[Task | RelierError] = client.sync_store.run_many(client.ledger.get(task_id) for task_id in wanted)
    _raise_outage(found)
    return {task.record.id: task for task in found if isinstance(task, Task)}


def _raise_outage(answers: Sequence[Any]) -> None:
    """Raise the first error of the store. Any other says that a task has moved on."""
    outage = next((answer for answer in answers if isinstance(answer, StoreError)), None)
    if outage is not None:
        raise outage
