"""`revoke` reaches the ledger: what waits there is cancelled at once, whichever worker would have got it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from celery.app.task import Context
from celery.signals import task_revoked
from kombu.serialization import loads, prepare_accept_content
from kombu.utils.functional import maybe_list

from relier.celery.messages import Message, read_message
from relier.codec import decode
from relier.envelope import open_envelope
from relier.errors import IllegalMoveError, RelierError, TaskNotFoundError, VersionConflictError
from relier.ledger.records import Task
from relier.states import ENDED, State

if TYPE_CHECKING:
    from relier.celery.adoption import Adoption

CANCEL_TRIES = 5


def control_class(base: type[Any], adoption: Adoption) -> type[Any]:
    """The app's own Control class, whose revokes are the ledger's, too."""

    class LedgerControl(base):
        def revoke(self, task_id: Any, *args: Any, terminate: bool = False, **kwargs: Any) -> Any:
            for each in maybe_list(task_id):
                cancelled = cancel(adoption, each, running=terminate)
                if cancelled is not None:
                    announce(self.app, each, cancelled)
            return super().revoke(task_id, *args, terminate=terminate, **kwargs)

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
            message = _message_of(adoption, task)
            if (waits and _in_chord(adoption, message)) or not (waits or running):
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


def _message_of(adoption: Adoption, task: Task) -> Message:
    """The message of a record; of an `@rl_task`, and of one that cannot be read, as much as is known."""
    record = task.record
    try:
        opened = open_envelope(
            task.payload or b"", task_id=record.id, name=record.name, keyring=adoption.client.keyring
        )
        args, _ = decode(opened.body)
        return read_message(args[0])
    except (RelierError, TypeError, ValueError, LookupError):
        return Message({"task": record.name, "id": record.id}, {}, "", "", "")


def _in_chord(adoption: Adoption, message: Message) -> bool:
    if not message.content_type:
        return False
    accept = prepare_accept_content(adoption.app.conf.accept_content)
    try:
        _, _, embed = loads(message.body, message.content_type, message.content_encoding, accept=accept)
    except Exception:  # noqa: BLE001 - a serializer may raise anything; what cannot be read cannot be run either
        return False
    return bool((embed or {}).get("chord"))


def announce(app: Any, task_id: str, message: Message) -> None:
    """What waited in the ledger was revoked here, by no worker: so its state, event and signal come from here."""
    about = {"terminated": False, "signum": None, "expired": False}
    request = Context(message.headers)
    if not message.headers.get("ignore_result"):
        app.backend.mark_as_revoked(task_id, "revoked", request=request)
    with app.events.default_dispatcher() as dispatcher:
        dispatcher.send("task-revoked", uuid=task_id, **about)
    task_revoked.send(sender=app.tasks.get(message.task, message.task), request=request, **about)
