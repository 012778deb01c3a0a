"""A record of the ledger as a TaskResult."""

from __future__ import annotations

import time
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from relier import codec
from relier.django.tasks.library import TaskError, TaskResult, TaskResultStatus
from relier.envelope import open_envelope
from relier.errors import PayloadIntegrityError
from relier.failure import read_failure
from relier.ledger.records import Record, Task
from relier.states import ENDED, State
from relier.submit.client import Client

STATUS = {
    State.SCHEDULED: TaskResultStatus.READY,
    State.QUEUED: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.DONE: TaskResultStatus.SUCCESSFUL,
    State.DEAD: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
}
ENDED_BY = {  # the error of a task that did not end by an exception of its own
    State.DEAD: "relier.errors.TaskDeadError",
    State.CANCELLED: "relier.errors.TaskCancelledError",
}


def about_task(task: Any) -> dict[str, Any]:
    """Return what a payload holds besides the arguments, to rebuild the task from."""
    after, now_ms = task.run_after, time.time_ns() // 1_000_000
    named = {"backend": task.backend, "priority": task.priority, "enqueued_ms": now_ms}
    return named | {"run_after": after and after.isoformat()}


def result_of_call(task: Any, task_id: str, args: Any, kwargs: Any, about: dict[str, Any], queue: str = "") -> Any:
    """Return the result of a task that was just accepted."""
    after = about.get("run_after")
    alias = about.get("backend", task.backend)
    rebuilt = with_values(
        task,
        priority=about.get("priority", task.priority),
        run_after=after and datetime.fromisoformat(after),
        queue_name=queue or task.queue_name,
        backend=alias,
    )
    return TaskResult(
        task=rebuilt,
        id=task_id,
        status=TaskResultStatus.READY,
        enqueued_at=moment_of(about["enqueued_ms"]) if "enqueued_ms" in about else None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def with_values(task: Any, **values: Any) -> Any:
    """Return the task as it was enqueued. It is not validated again: QUEUES may have changed since."""
    rebuilt = object.__new__(type(task))
    for field in fields(task):
        object.__setattr__(rebuilt, field.name, values.get(field.name, getattr(task, field.name)))
    return rebuilt


def result_of_record(task: Any, found: Task, client: Client) -> Any:
    """Return the result of a task that the ledger has."""
    record = found.record
    stored = _stored(found, client)
    args, kwargs, about = _call_of(found, client) if not stored else (stored["args"], stored["kwargs"], stored["about"])
    result = result_of_call(task, record.id, args, kwargs, about, record.queue)
    workers = workers_of(found)
    started = [entry.since_ms for entry in found.history if entry.since_ms]
    started += [record.moved_ms] if record.state is State.RUNNING else []
    started += [stored["started_ms"]] if stored else []
    values = {
        "status": STATUS[record.state],
        "enqueued_at": result.enqueued_at or moment_of(record.spec.at_us // 1000),
        "started_at": moment_of(min(started)) if started else None,
        "last_attempted_at": moment_of(max(started)) if started else None,
        "finished_at": moment_of(record.moved_ms or max(started, default=0)) if record.state in ENDED else None,
        "errors": errors_of(found),
        "worker_ids": workers,
        "_return_value": stored["value"] if stored else None,
    }
    for name, value in values.items():
        object.__setattr__(result, name, value)
    return result


def workers_of(found: Task) -> list[str]:
    """Return the worker of each attempt, or an empty text if the history no longer shows it."""
    record = found.record
    workers = {entry.attempt: entry.worker_id for entry in found.history}
    if record.state in (State.RUNNING, State.DONE):
        workers[record.attempt] = record.worker_id
    return [workers.get(nth, "") for nth in range(1, record.attempt + 1)]


def errors_of(found: Task) -> list[Any]:
    """Return the errors of all attempts, oldest first, and how the task ended if it did not end by one of them."""
    failures = [read_failure(entry.detail) for entry in found.history]
    errors = [
        TaskError(exception_class_path=each.kind.replace(":", "."), traceback=each.traceback or each.message)
        for each in failures
        if each.kind
    ]
    record: Record = found.record
    if record.state in ENDED_BY and not (failures and failures[-1].kind):
        why = f"{record.reason}: {failures[-1].message}" if failures else record.reason
        errors.append(TaskError(exception_class_path=ENDED_BY[record.state], traceback=why))
    return errors


def _stored(found: Task, client: Client) -> dict[str, Any]:
    """Return what the body of a done task stored: its arguments and its value."""
    if found.result is None or found.record.state is not State.DONE:
        return {}
    stored: dict[str, Any] = codec.decode(client.keyring.unwrap(found.result, found.record.id, "result"))
    return stored


def _call_of(found: Task, client: Client) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Return the call in the payload. A cancelled task has none any more."""
    record = found.record
    if found.payload is None:
        return [], {}, {}
    return call_in(found.payload, record.id, record.name, client)


def call_in(
    payload: bytes, task_id: str, name: str, client: Client
) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    try:
        opened = open_envelope(payload, task_id=task_id, name=name, keyring=client.keyring)
    except PayloadIntegrityError:
        return [], {}, {}  # a worker will refuse it; its status can still be read
    (args, kwargs, about), _ = codec.decode(opened.body)
    return args, kwargs, about


def moment_of(ms: int) -> datetime:
    """Return a time as the project writes times: with a time zone if USE_TZ is on."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment if settings.USE_TZ else timezone.make_naive(moment)
