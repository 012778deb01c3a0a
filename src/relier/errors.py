"""All errors that Relier raises.

RelierError
├── ConfigurationError              settings, URL or server cannot be used; mostly raised at start
│   ├── OutboxDatabaseError         the database of an outbox refuses a relay: credentials, rights, tables
│   ├── ScheduleDefinitionError     a schedule's times, options or arguments are invalid
│   ├── ShardsError                 RELIER_SHARDS differs from the namespace's, or something does not support shards
│   └── LayoutError                 the namespace was written in a different layout
├── StoreError                      the store failed; a call either ran fully or not at all
│   ├── StoreUnavailableError       an outage; the same call may succeed later
│   │   ├── RedisConnectionError    the store could not be reached within the deadline
│   │   │   └── StoreNotReadyError  the store answered, but was not ready in time; the call did not run
│   │   ├── StoreFullError          OOM: the store is at maxmemory
│   │   ├── StoreDiskError          MISCONF: the store cannot persist
│   │   ├── StoreReadOnlyError      only a replica answers
│   │   └── StoreSetupError         credentials, ACL or server settings forbid the call (also a ConfigurationError)
│   └── StoreReplyError             an unexpected reply, or a script error
├── IndeterminateError              the change was written, but its durability was not confirmed
│   ├── PushIndeterminate           push again under the same id: always safe
│   └── CommitIndeterminate         commit the same attempt again: always safe
├── AdmissionRejectedError          over a limit; carries retry_after
├── IdempotencyInFlightError        work with the same key is in progress
│   └── TaskInFlightError           on_duplicate="raise": a task with the same key has not ended
├── DuplicateTaskError              on_duplicate="raise": a task with the same key is already done
├── PayloadTooLargeError            above RELIER_MAX_PAYLOAD_BYTES
├── InvalidSubmissionError          a field of a submission has a wrong type or value
├── PayloadEncodingError            an argument, result or checkpoint cannot be encoded
├── PayloadIntegrityError           a checksum or signature is wrong, or decryption failed
├── UnknownTaskError                this process knows no task of that name
├── SchemaMigrationError            a payload of an older schema version cannot be migrated
├── CheckpointTooLargeError         too large for the record, and RELIER_CHECKPOINT_DIR is not set
├── CheckpointStoreError            RELIER_CHECKPOINT_DIR cannot be written or read
├── StepJournalError                two branches used one step name, or the steps differ from the earlier attempt's
├── NotAwaitedError                 ctx.step or ctx.set_partial was called without `await`, or in a `def`
├── OutsideTransactionError         push_in: no transaction is open for the row
├── ExactlyOnceError                ctx.exactly_once: the block's mark and effects did not commit together
├── PartialPushError                push_many: some tasks were accepted; `outcomes` lists them
├── BackupError                     a backup could not be made; earlier ones are untouched
├── RestoreRefusedError             a backup was not restored; the data folder is untouched
├── WorkerInitializationError       a worker could not start: its modules, queues or store
├── HardTimeoutError                the task exceeded its hard timeout
├── ResultTimeoutError              the task had not ended when `result(timeout=…)` gave up
├── TaskDeadError                   result(): the task is dead; carries reason, message and traceback
│   └── MaxResurrectionsExceededError   too many processes died while they ran the task
├── TaskCancelledError              result(): the task was cancelled
│   └── WorkflowCancelledError      result(): the workflow was cancelled as a whole
├── WorkflowFailedError             result(): a task of the workflow failed; carries its id
└── LedgerError                     the ledger refused a move
    ├── TaskNotFoundError           no record with this id
    │   └── StoreEmptiedError       the task was accepted, then the store was emptied or replaced
    ├── ScheduleNotFoundError       no schedule with this name
    ├── ScheduleConflictError       another origin declared the schedule, or it changed while it was edited
    ├── BatchNotFoundError          no batch with this id
    ├── BatchClosedError            the batch does not accept this task: sealed, ended, cancelled or abandoned
    ├── LeaseLostError              the attempt no longer holds its task, or a lock was lost
    ├── IllegalMoveError            the record's state does not allow the move
    ├── VersionConflictError        the record changed since it was read
    ├── IdempotencyConflictError    replay: another task holds the key now
    └── CorruptRecordError          the record exists but cannot be read

Messages say what happened, why, and what to do.
"""

from __future__ import annotations


class RelierError(Exception):
    """The base class of all errors that Relier raises."""


class ConfigurationError(RelierError):
    """The settings, the URL or the server cannot be used as configured."""


class LayoutError(ConfigurationError):
    """The namespace holds data in a different layout. Nothing was written."""


class ShardsError(ConfigurationError):
    """The namespace has another number of shards than RELIER_SHARDS says, or a part of Relier or a task's definition
    does not work with several shards. Nothing was written."""


class OutboxDatabaseError(ConfigurationError):
    """The database of an outbox refuses a relay: wrong credentials, missing rights, or no such database or table."""


class ScheduleDefinitionError(ConfigurationError, ValueError):
    """The definition of a schedule is invalid, or this process cannot read the stored definition."""


class StoreError(RelierError):
    """The store failed. A script either ran completely or not at all.

    If a push raised it, `task_ids` holds the ids of all its tasks and `task_id` the first one. The push may have been
    accepted. Push again under the same ids, with `task.with_options(task_id=error.task_id)` or
    `task.push_many(calls, task_ids=error.task_ids)`: that never creates a second task.
    """

    task_ids: tuple[str, ...] = ()

    @property
    def task_id(self) -> str:
        return self.task_ids[0] if self.task_ids else ""


class StoreUnavailableError(StoreError):
    """The store is unavailable. The same call may succeed later, and every move is safe to repeat."""


class RedisConnectionError(StoreUnavailableError):
    """The store could not be reached, or did not answer, within the deadline. The call may have run, except where a
    subclass says otherwise. Every move is safe to repeat."""


class StoreNotReadyError(RedisConnectionError):
    """The store did not become ready before the deadline: it was loading data, failing over, waiting for replicas,
    moving a slot or busy. The call did not run."""


class StoreSetupError(StoreUnavailableError, ConfigurationError):
    """The store refuses this client or lacks something: user, password, ACL, eviction policy, certificate, or a way to
    confirm the durability. At start, correct the configuration. A running worker or relay treats it as an outage,
    because the server was changed and can be changed back."""


class StoreFullError(StoreUnavailableError):
    """The store is at its memory limit and refuses new data. Nothing was written."""


class StoreDiskError(StoreUnavailableError):
    """The store cannot write to its disk and refuses changes. Nothing was written."""


class StoreReadOnlyError(StoreUnavailableError):
    """Only a read-only replica answered, even after looking up the primary again."""


class StoreReplyError(StoreError):
    """The store answered with an error or with an unexpected reply."""


class IndeterminateError(RelierError):
    """The ledger made the change, but its durability was not confirmed in time. Repeat the call: that is safe."""


class PushIndeterminate(IndeterminateError):
    """The push was written, but its durability was not confirmed. Push again under the same id, `task_id`, or for a
    bulk push under the same `task_ids`."""

    def __init__(self, task_id: str, message: str = "", *, others: tuple[str, ...] = ()) -> None:
        what = f"{task_id} and {len(others)} other tasks" if others else task_id
        super().__init__(
            message
            or f"push of {what} ran, but its durability was not confirmed in time; "
            f"push the same id again, which never creates a second task"
        )
        self.task_id = task_id
        self.task_ids = (task_id, *others)


class CommitIndeterminate(IndeterminateError):
    """The commit was written, but its durability was not confirmed. Commit the same attempt again: that is safe."""


class AdmissionRejectedError(RelierError):
    """An admission limit was reached. Nothing was accepted; try again after `retry_after` seconds.

    `limit` is "all", "key:…", "depth:<queue>" or "bytes". For "key:…", `key` is the key built from the arguments.
    """

    def __init__(self, limit: str, retry_after: float, message: str = "") -> None:
        super().__init__(
            message or f"admission limit {limit!r} is reached; nothing was accepted; retry after {retry_after:.3f} s"
        )
        self.limit = limit
        self.retry_after = retry_after

    @property
    def key(self) -> str:
        return self.limit.removeprefix("key:") if self.limit.startswith("key:") else ""


class IdempotencyInFlightError(RelierError):
    """Work with the same idempotency key is in progress."""

    def __init__(self, message: str, task_id: str = "") -> None:
        super().__init__(message)
        self.task_id = task_id


class TaskInFlightError(IdempotencyInFlightError):
    """A task with the same idempotency key has not ended, and the pushed task has `on_duplicate="raise"`. A task that
    lets this error escape fails. Unlike after a lock conflict, it is not put back, because it may have had effects."""


class DuplicateTaskError(RelierError):
    """A task with the same idempotency key is already done, and the pushed task has `on_duplicate="raise"`."""

    def __init__(self, message: str, task_id: str) -> None:
        super().__init__(message)
        self.task_id = task_id


class PayloadTooLargeError(RelierError, ValueError):
    """A payload, result or checkpoint is larger than its limit. Nothing was written."""


class InvalidSubmissionError(RelierError, ValueError):
    """A field of a submission has a wrong type or value. Nothing was written."""


class PayloadEncodingError(RelierError, TypeError):
    """A value has a type that cannot be encoded. Nothing was written."""


class PayloadIntegrityError(RelierError):
    """The checksum or signature of a payload is wrong, or it cannot be decrypted. The task was not run, and its bytes
    are kept. Also raised for a result, checkpoint or step that cannot be decrypted."""


class UnknownTaskError(RelierError):
    """This process knows no task of that name: its module is not imported."""


class SchemaMigrationError(RelierError):
    """A payload of an older schema version cannot be migrated to the current one. Its original bytes are kept."""


class CheckpointTooLargeError(RelierError, ValueError):
    """A checkpoint is larger than RELIER_CHECKPOINT_MAX_INLINE_BYTES, and RELIER_CHECKPOINT_DIR is not set."""


class CheckpointStoreError(RelierError):
    """The folder for large checkpoints (RELIER_CHECKPOINT_DIR) cannot be written or read."""


class StepJournalError(RelierError):
    """Two branches of one attempt used the same step name, or the steps differ from those that an earlier
    attempt recorded."""


class NotAwaitedError(RelierError):
    """`ctx.step` or `ctx.set_partial` was called without `await`, or in a `def`. It had no effect. If `final` is true,
    the task had already returned, and trying again cannot help."""

    final = False


class OutsideTransactionError(RelierError):
    """A push into an outbox, or an inbox mark, was made outside a transaction. Nothing was written."""


class ExactlyOnceError(RelierError):
    """The mark and the effects of a `ctx.exactly_once` block did not commit together. If `final` is true, the mark may
    exist and another attempt would be skipped, so an operator has to check what the task did."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class PartialPushError(RelierError):
    """Only some tasks of a `push_many` were accepted. `outcomes` maps each id to None or its error, in order. Push all
    calls again with `push_many(calls, task_ids=error.task_ids)`: that never creates a second task."""

    def __init__(self, outcomes: dict[str, RelierError | None]) -> None:
        errors = [error for error in outcomes.values() if error is not None]
        super().__init__(
            f"{len(outcomes) - len(errors)} of {len(outcomes)} tasks were accepted, the others failed with "
            f"{type(errors[0]).__name__}: {errors[0]}; `outcomes` lists them; push the same calls again with "
            f"push_many(calls, task_ids=error.task_ids), which never creates a second task"
        )
        self.outcomes = outcomes

    @property
    def task_ids(self) -> tuple[str, ...]:
        return tuple(self.outcomes)


class BackupError(RelierError):
    """A backup could not be made. Earlier backups are untouched."""


class RestoreRefusedError(RelierError):
    """A backup was not restored: it is damaged, or the store is in use. The data folder is untouched."""


class WorkerInitializationError(RelierError):
    """A worker could not start. No task was claimed."""


class HardTimeoutError(RelierError, TimeoutError):
    """The task exceeded its hard timeout and was stopped."""


class ResultTimeoutError(RelierError, TimeoutError):
    """The task did not end within the given time. It continues; wait for it again."""


class TaskDeadError(RelierError):
    """The task is dead and can be replayed. `reason` says why it died; `traceback` comes from the worker."""

    def __init__(self, task_id: str, reason: str, message: str = "", traceback: str = "") -> None:
        why = f": {message}" if message else ""
        super().__init__(
            f"task {task_id} is dead ({reason}{why}); see `rl why {task_id}`, or replay it with `rl dlq replay`"
        )
        self.task_id = task_id
        self.reason = reason
        self.message = message
        self.traceback = traceback


class MaxResurrectionsExceededError(TaskDeadError):
    """Too many processes died while they ran the task: its own (`max_resurrections_exceeded`) or its workers'
    (`workers_kept_dying`)."""


class TaskCancelledError(RelierError):
    """The task was cancelled, on request or because it expired before it could start."""


class WorkflowCancelledError(TaskCancelledError):
    """The workflow was cancelled."""


class WorkflowFailedError(RelierError):
    """A workflow did not succeed. `task_id` is the first task that failed, and `__cause__` is that task's error.
    If the producer stopped before it had added all tasks, the workflow was abandoned, and `task_id` is empty."""

    def __init__(self, workflow_id: str, message: str, task_id: str = "") -> None:
        super().__init__(message)
        self.workflow_id = workflow_id
        self.task_id = task_id


class LedgerError(RelierError):
    """The ledger refused a move. Nothing changed."""


class TaskNotFoundError(LedgerError):
    """There is no record with this id: it never existed, or its retention has ended."""


class StoreEmptiedError(TaskNotFoundError):
    """The task was accepted, but the store was emptied or replaced since then: its birth mark has changed. The task is
    lost unless a backup or an outbox has it."""


class ScheduleNotFoundError(LedgerError):
    """There is no schedule with this name."""


class ScheduleConflictError(LedgerError):
    """The schedule is declared in code, or it changed while it was edited. Nothing was written."""


class BatchNotFoundError(LedgerError):
    """There is no batch with this id: it never existed, or its retention has ended."""


class BatchClosedError(LedgerError):
    """The batch does not accept the task: the batch was sealed, has ended, was cancelled, or was abandoned by its
    producer. Only its own running members may add tasks to a sealed batch."""


class LeaseLostError(LedgerError):
    """The attempt no longer holds its task, or a lock expired under its holder. The outcome was refused."""


class IllegalMoveError(LedgerError):
    """The state of the record does not allow the move."""


class VersionConflictError(LedgerError):
    """The record changed since it was read. Read it again, then decide."""


class IdempotencyConflictError(LedgerError):
    """Replay was refused: another task holds the idempotency key now."""


class CorruptRecordError(LedgerError):
    """The record exists but cannot be read: a field is missing or of the wrong type."""
