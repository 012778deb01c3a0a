"""Prepare a claimed task to run: find its function, open its envelope, decode its arguments.

If a task cannot run, the reason becomes its outcome and is recorded, not just logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from relier import registry
from relier.arguments.dependencies import Dependencies
from relier.envelope import Envelope, open_envelope
from relier.errors import PayloadIntegrityError, SchemaMigrationError, UnknownTaskError
from relier.ledger.records import Claimed, Lease
from relier.redact import Show, showing
from relier.run.channel import LedgerChannel
from relier.run.context import TaskContext
from relier.run.migrations import migrated
from relier.run.outcome import Failed, Outcome, PutBack
from relier.task import RlTask
from relier.trace import parent_of
from relier.workflows.inputs import with_first


@dataclass(eq=False, slots=True)
class Attempt:
    """Hold one run of one task. The engine sets the fields from `began` on while the attempt runs."""

    claimed: Claimed
    task: RlTask[Any, Any]
    envelope: Envelope
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    ctx: TaskContext
    isolated: bool  # runs in its own process, by its option or because the task is a suspect
    show: Show | None = None  # redacts the task's values in logs; None: nothing is redacted
    began: float | None = None  # monotonic
    stop: Outcome | None = None  # set when the attempt is asked to stop: the outcome of its cancellation
    stopper: Callable[[], Any] | None = None  # interrupts the running code
    warned: bool = False  # the soft timeout hook was called
    timers: list[Any] = field(default_factory=list)
    asyncio_task: asyncio.Task[Any] | None = None

    @property
    def lease(self) -> Lease:
        return self.claimed.lease

    @property
    def key(self) -> tuple[str, str]:
        """Return the task id and fence, which identify this attempt among all attempts of all tasks."""
        return self.claimed.lease.task_id, self.claimed.lease.fence

    @property
    def overdue_at(self) -> float | None:
        """Return when the attempt passes its hard timeout (monotonic), or None if it has none or has not begun.

        The value grows while the attempt waits for the store.
        """
        limit = self.task.options.hard_timeout
        return None if limit is None or self.began is None else self.began + limit + self.ctx.kept_waiting

    def cancel_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()

    def arguments(self, provided: Dependencies | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments to call the function with, including the context and dependencies it asks for."""
        self._check_signature()
        arguments = self.task.arguments
        if provided is None:
            return arguments.with_context(self.args, self.kwargs, self.ctx)
        context = {} if arguments.context_parameter is None else {arguments.context_parameter: self.ctx}
        return arguments.with_injected(self.args, self.kwargs, context | provided.values)

    def _check_signature(self) -> None:
        """Raise TypeError if the arguments do not fit the function.

        The push compared them with the signature it knew, so this code has a different one. The task's retries cover
        this error like any other: during a deploy, the next attempt may meet other code.
        """
        try:
            self.task.arguments.check(self.args, self.kwargs)
        except TypeError as error:
            raise TypeError(
                f"{error}: the task was pushed by other code, with a different signature; replay it with arguments "
                f"that fit: `rl dlq replay {self.lease.task_id} --payload FILE`; for the next change, use "
                f"schema_version and a migration"
            ) from None


def open_attempt(
    claimed: Claimed, channel: LedgerChannel, trusted_until: Callable[[], float] | None = None
) -> Attempt | Outcome:
    """Return the attempt, or the outcome that says why the task cannot run here."""
    record = claimed.record
    task = registry.find(record.name)
    if task is None:
        near = "".join(f" ({other} is)" for other in registry.namesakes(record.name)[:3])
        return PutBack(
            UnknownTaskError(
                f"no task {record.name!r} is known here{near}; start this worker with the module that defines it, or "
                f"stop pushing it to queue {record.queue!r}"
            )
        )
    try:
        envelope = open_envelope(claimed.payload, task_id=record.id, name=record.name, keyring=channel.keyring)
    except PayloadIntegrityError as error:
        return Failed(error, final=True)
    if envelope.schema_version > task.options.schema_version:
        return PutBack(
            SchemaMigrationError(
                f"the payload has schema version {envelope.schema_version}, this code knows "
                f"{task.options.schema_version}: newer code pushed the task, which waits for a worker with that code"
            )
        )
    if claimed.given:
        envelope = replace(envelope, body=with_first(envelope.body, claimed.given))
    try:
        args, kwargs = task.arguments.decode(migrated(task, envelope))
    except BaseException as error:  # noqa: BLE001 - no payload may ever end a worker, not even by a sys.exit()
        return Failed(error, final=True)
    ctx = context_of(claimed, envelope, args, kwargs, channel, trusted_until)
    isolated = task.options.isolate or claimed.alone
    return Attempt(claimed, task, envelope, args, kwargs, ctx, isolated, showing(channel.settings.redact, record.name))


def context_of(
    claimed: Claimed,
    envelope: Envelope,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    channel: LedgerChannel,
    trusted_until: Callable[[], float] | None,
) -> TaskContext:
    return TaskContext(claimed, channel, args, kwargs, metadata_of(claimed, envelope), trusted_until)


def metadata_of(claimed: Claimed, envelope: Envelope) -> dict[str, Any]:
    """Return the `ctx.metadata` of the attempt."""
    record = claimed.record
    return {
        "queue": record.queue,
        "priority": record.spec.priority,
        "pushed_at_ms": envelope.pushed_ms,
        "schema_version": envelope.schema_version,
        "trace": parent_of(envelope.trace),
        "retries": claimed.retries,
        "deaths": claimed.deaths,
    } | _batch_of(envelope)


def _batch_of(envelope: Envelope) -> dict[str, Any]:
    batch = envelope.flow.partition(" ")[0]
    return {} if batch in {"", "-"} else {"batch": batch}
