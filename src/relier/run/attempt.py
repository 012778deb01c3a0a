"""A claimed task made ready to run: its envelope opened, its function found, its arguments decoded. Or what keeps it
from running, as an outcome: nothing is dropped with a log line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from relier import registry
from relier.envelope import Envelope, open_envelope
from relier.errors import PayloadIntegrityError, SchemaMigrationError, UnknownTaskError
from relier.ledger.records import Claimed, Lease
from relier.redact import Show, showing
from relier.run.context import TaskContext
from relier.run.line import Line
from relier.run.migrations import migrated
from relier.run.outcome import Failed, Outcome, PutBack
from relier.task import RlTask


@dataclass(eq=False, slots=True)
class Attempt:
    """One run of one task. What has a default is set by the engine while it runs."""

    claimed: Claimed
    task: RlTask[Any, Any]
    envelope: Envelope
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    ctx: TaskContext
    show: Show | None = None  # what people may see of its values; None: all
    began: float | None = None  # monotonic
    stop: Outcome | None = None  # why it was told to stop: what its cancellation means
    stopper: Callable[[], Any] | None = None  # how to reach what runs
    warned: bool = False  # its soft timeout was told
    timers: list[Any] = field(default_factory=list)
    asyncio_task: asyncio.Task[Any] | None = None

    @property
    def lease(self) -> Lease:
        return self.claimed.lease

    @property
    def key(self) -> tuple[str, str]:
        """Tells this attempt from every other, also from another one of the same task."""
        return self.claimed.lease.task_id, self.claimed.lease.fence

    @property
    def overdue_at(self) -> float | None:
        """When it is past its hard timeout (monotonic), as far as can be said now."""
        limit = self.task.options.hard_timeout
        return None if limit is None or self.began is None else self.began + limit + self.ctx.kept_waiting

    @property
    def isolated(self) -> bool:
        """It runs in a process of its own: by its option, or because it is a suspect."""
        return self.task.options.isolate or self.claimed.alone

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the function is called with: the context too, where it asks for it."""
        return self.task.arguments.with_context(self.args, self.kwargs, self.ctx)


def open_attempt(claimed: Claimed, line: Line, trusted_until: Callable[[], float] | None = None) -> Attempt | Outcome:
    """The attempt, or why it cannot run here."""
    record = claimed.record
    task = registry.find(record.name)
    if task is None:
        near = "".join(f" ({other} is)" for other in registry.namesakes(record.name)[:3])
        return PutBack(
            UnknownTaskError(
                f"no task {record.name!r} is known here{near}; start this worker with the module that holds it, or "
                f"stop pushing it to queue {record.queue!r}"
            )
        )
    try:
        envelope = open_envelope(claimed.payload, task_id=record.id, name=record.name, keyring=line.keyring)
    except PayloadIntegrityError as error:
        return Failed(error, final=True)
    if envelope.schema_version > task.options.schema_version:
        return PutBack(
            SchemaMigrationError(
                f"the payload has schema version {envelope.schema_version}, this code knows "
                f"{task.options.schema_version}: newer code pushed it, and it waits for a worker that runs that"
            )
        )
    try:
        args, kwargs = task.arguments.decode(migrated(task, envelope))
    except BaseException as error:  # noqa: BLE001 - no payload may ever end a worker, not even by a sys.exit()
        return Failed(error, final=True)
    ctx = context_of(claimed, envelope, args, kwargs, line, trusted_until)
    return Attempt(claimed, task, envelope, args, kwargs, ctx, showing(line.settings.redact, record.name))


def context_of(
    claimed: Claimed,
    envelope: Envelope,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    line: Line,
    trusted_until: Callable[[], float] | None,
) -> TaskContext:
    record = claimed.record
    metadata = {
        "queue": record.queue,
        "priority": record.spec.priority,
        "pushed_at_ms": envelope.pushed_ms,
        "schema_version": envelope.schema_version,
        "trace": envelope.trace,
        "retries": claimed.retries,
        "deaths": claimed.deaths,
    }
    return TaskContext(claimed, line, args, kwargs, metadata, trusted_until)
