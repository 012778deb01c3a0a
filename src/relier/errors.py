"""Every error Relier raises on purpose.

RelierError
├── ConfigurationError              settings, URL or server cannot work as asked; raised at start
│   ├── OutboxDatabaseError         the database of an outbox refuses a relay: credentials, rights, tables
│   └── LayoutError                 the namespace holds another layout than this code's
├── StoreError                      the store could not do it; nothing was half-applied
│   ├── StoreUnavailableError       not now: an outage. Whoever must not give up repeats the call
│   │   ├── RedisConnectionError    no answer within the deadline; the call may or may not have run
│   │   │   └── StoreNotReadyError  the store answered "not now" until the deadline; the call did not run
│   │   ├── StoreFullError          OOM: the store is at maxmemory
│   │   ├── StoreDiskError          MISCONF: the store cannot persist
│   │   ├── StoreReadOnlyError      only a replica answers
│   │   └── StoreSetupError         credentials, ACL or server settings do not allow it (also a ConfigurationError)
│   └── StoreReplyError             an answer that makes no sense, or a script error
├── IndeterminateError              it ran, but the asked durability was not confirmed
│   ├── PushIndeterminate           push the same id again: always safe
│   └── CommitIndeterminate         commit the same lease again: always safe
├── AdmissionRejectedError          over a limit; carries retry_after
├── IdempotencyInFlightError        the same key is being worked on
│   └── TaskInFlightError           on_duplicate="raise": a task with the same key has not ended
├── DuplicateTaskError              on_duplicate="raise": a task with the same key was done already
├── PayloadTooLargeError            above RELIER_MAX_PAYLOAD_BYTES
├── InvalidSubmissionError          a field of a submission has a wrong type or range
├── PayloadEncodingError            an argument, result or checkpoint is of a type that cannot travel
├── PayloadIntegrityError           a payload's checksum or signature does not fit, or a value cannot be decrypted
├── UnknownTaskError                no task of that name is known to this process
├── SchemaMigrationError            a payload of an older schema version cannot be brought up to this code's
├── CheckpointTooLargeError         too large to keep in the record, and RELIER_CHECKPOINT_DIR is not set
├── CheckpointStoreError            the place for large checkpoints cannot be written or read
├── StepJournalError                two branches used one step name, or the code changed since its journal was written
├── NotAwaitedError                 ctx.step or ctx.set_partial was called without `await`, or in a `def`
├── OutsideTransactionError         push_in: there is no transaction the row could be part of
├── ExactlyOnceError                ctx.exactly_once: the block's mark and effects did not commit together
├── PartialPushError                push_many: some of the tasks were accepted; says which
├── WorkerInitializationError       a worker could not start: its modules, its queues, its store
├── HardTimeoutError                the task ran into its hard timeout
├── ResultTimeoutError              the task had not ended when `result(timeout=…)` gave up
├── TaskDeadError                   result(): the task is dead; carries reason, message and traceback
│   └── MaxResurrectionsExceededError   it took its process down once too often
├── TaskCancelledError              result(): the task was cancelled
└── LedgerError                     the ledger said no to a move
    ├── TaskNotFoundError           no record of that id
    │   └── StoreEmptiedError       the task was accepted, and the store was emptied or replaced since
    ├── LeaseLostError              another attempt owns the task, or nobody does; a lock was lost
    ├── IllegalMoveError            the record's state does not allow the move
    ├── VersionConflictError        the record changed since it was read
    ├── IdempotencyConflictError    replay: another task holds the key now
    └── CorruptRecordError          the record exists but cannot be read

Messages say what happened, why, and what to do.
"""

from __future__ import annotations


class RelierError(Exception):
    """The root of everything Relier raises on purpose."""


class ConfigurationError(RelierError):
    """Settings, URL or server cannot work as asked."""


class LayoutError(ConfigurationError):
    """The namespace holds data of another layout; nothing was written."""


class OutboxDatabaseError(ConfigurationError):
    """The database of an outbox refuses a relay: credentials, rights, a database or a table that is not there."""


class StoreError(RelierError):
    """The store could not do it. The script either ran whole or not at all.

    Out of a push it carries `task_ids`, the ids of all its tasks, and `task_id`, the first of them: the push may have
    been accepted. Pushing it again under the same ids, `task.with_options(task_id=error.task_id)` or
    `task.push_many(calls, task_ids=error.task_ids)`, never makes a second task.
    """

    task_ids: tuple[str, ...] = ()

    @property
    def task_id(self) -> str:
        return self.task_ids[0] if self.task_ids else ""


class StoreUnavailableError(StoreError):
    """The store cannot do it now. The same call may succeed later, and every move is safe to repeat."""


class RedisConnectionError(StoreUnavailableError):
    """No answer within the deadline. The call may have run; every move is safe to repeat."""


class StoreNotReadyError(RedisConnectionError):
    """The store answered "not now" until the deadline: it loads its data, fails over, waits for replicas, moves a slot
    or is busy. The call did not run."""


class StoreSetupError(StoreUnavailableError, ConfigurationError):
    """The store refuses this client, or is not set up for what was asked: user, password, ACL, eviction policy,
    certificate, or the means to confirm a durability. At start that is a mistake to correct. For a running worker or
    relay it is an outage like any other: somebody changed the server, and will change it back."""


class StoreFullError(StoreUnavailableError):
    """The store is at its memory limit and refuses new data. Nothing was written."""


class StoreDiskError(StoreUnavailableError):
    """The store cannot write to its disk and refuses changes. Nothing was written."""


class StoreReadOnlyError(StoreUnavailableError):
    """Only a read-only replica answered, also after looking for the master again."""


class StoreReplyError(StoreError):
    """The store answered with an error or with something that cannot be understood."""


class IndeterminateError(RelierError):
    """The move ran, but the asked durability was not confirmed in time. Repeat it: that is safe."""


class PushIndeterminate(IndeterminateError):
    """The push was written but not confirmed at its durability. Push the same ids again: `task_id`, or of a bulk all
    `task_ids`."""

    def __init__(self, task_id: str, message: str = "", *, others: tuple[str, ...] = ()) -> None:
        what = f"{task_id} and {len(others)} other tasks" if others else task_id
        super().__init__(
            message
            or f"push of {what} ran, but its durability was not confirmed in time; "
            f"push the same id again: that never makes a second task"
        )
        self.task_id = task_id
        self.task_ids = (task_id, *others)


class CommitIndeterminate(IndeterminateError):
    """The commit was written but not confirmed at its durability. Commit the same lease again."""


class AdmissionRejectedError(RelierError):
    """Over a limit. Nothing was accepted; try again after `retry_after` seconds.

    `limit` is "all", "key:…", "depth:<queue>" or "bytes"; `key` what a template made of the arguments, if it was one.
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
    """The same idempotency key is being worked on right now."""

    def __init__(self, message: str, task_id: str = "") -> None:
        super().__init__(message)
        self.task_id = task_id


class TaskInFlightError(IdempotencyInFlightError):
    """A task with the same idempotency key has not ended, and the task says `on_duplicate="raise"`. Unlike a lock's
    conflict it does not put back the task that lets it out: that did run, and may have done something before."""


class DuplicateTaskError(RelierError):
    """A task with the same idempotency key was done already, and the task says `on_duplicate="raise"`."""

    def __init__(self, message: str, task_id: str) -> None:
        super().__init__(message)
        self.task_id = task_id


class PayloadTooLargeError(RelierError, ValueError):
    """A payload, result or checkpoint is larger than its limit. Nothing was written."""


class InvalidSubmissionError(RelierError, ValueError):
    """A field of a submission has a wrong type or range. Nothing was written."""


class PayloadEncodingError(RelierError, TypeError):
    """A value is of a type that cannot travel. Nothing was written."""


class PayloadIntegrityError(RelierError):
    """A payload is none of ours: its checksum or its signature does not fit, or it cannot be decrypted. It was not run;
    its bytes are kept. Also: a result, checkpoint or step that cannot be decrypted."""


class UnknownTaskError(RelierError):
    """No task of that name is known to this process: its module is not imported here."""


class SchemaMigrationError(RelierError):
    """A payload of an older schema version cannot be brought up to this code's. Its original bytes are kept."""


class CheckpointTooLargeError(RelierError, ValueError):
    """A checkpoint is larger than RELIER_CHECKPOINT_MAX_INLINE_BYTES, and there is no place for large ones."""


class CheckpointStoreError(RelierError):
    """The place for large checkpoints (RELIER_CHECKPOINT_DIR) cannot be written or read."""


class StepJournalError(RelierError):
    """Two branches of one attempt used the same step name, or the steps are not those the journal was written by."""


class NotAwaitedError(RelierError):
    """`ctx.step` or `ctx.set_partial` was called and never awaited, or in a `def`, which cannot. It was not done."""


class OutsideTransactionError(RelierError):
    """A push into an outbox, or a mark of the inbox, would commit alone, without the rest. Nothing was written."""


class ExactlyOnceError(RelierError):
    """The mark and the effects of a `ctx.exactly_once` block were not committed together. `final`: the mark may be
    there, so another attempt would be skipped; a person has to look at what the task did."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class PartialPushError(RelierError):
    """Some tasks of a `push_many` were accepted, others not. `outcomes`: id -> None, or the error, in order. Pushing
    all calls again with `push_many(calls, task_ids=error.task_ids)` makes no second task of any."""

    def __init__(self, outcomes: dict[str, RelierError | None]) -> None:
        errors = [error for error in outcomes.values() if error is not None]
        super().__init__(
            f"{len(outcomes) - len(errors)} of {len(outcomes)} tasks were accepted, the others failed with "
            f"{type(errors[0]).__name__}: {errors[0]}; `outcomes` says which; push the same calls again with "
            f"push_many(calls, task_ids=error.task_ids): that never makes a second task"
        )
        self.outcomes = outcomes

    @property
    def task_ids(self) -> tuple[str, ...]:
        return tuple(self.outcomes)


class WorkerInitializationError(RelierError):
    """A worker could not start. No task was claimed."""


class HardTimeoutError(RelierError, TimeoutError):
    """The task ran into its hard timeout and was stopped."""


class ResultTimeoutError(RelierError, TimeoutError):
    """The task had not ended in the time given. It goes on; ask again."""


class TaskDeadError(RelierError):
    """The task is dead. `reason` says of what; `traceback` is the worker's; it can be replayed."""

    def __init__(self, task_id: str, reason: str, message: str = "", traceback: str = "") -> None:
        why = f": {message}" if message else ""
        super().__init__(
            f"task {task_id} is dead of {reason}{why}; see `rl why {task_id}`, replay it with `rl dlq replay`"
        )
        self.task_id = task_id
        self.reason = reason
        self.message = message
        self.traceback = traceback


class MaxResurrectionsExceededError(TaskDeadError):
    """Too many processes died under it: its own (`max_resurrections_exceeded`), or workers (`workers_kept_dying`)."""


class TaskCancelledError(RelierError):
    """The task was cancelled: by a person, or because it had expired before it could start."""


class LedgerError(RelierError):
    """The ledger said no to a move; nothing changed."""


class TaskNotFoundError(LedgerError):
    """No record of that id: it never existed, or was removed after its retention."""


class StoreEmptiedError(TaskNotFoundError):
    """The task was accepted, but the store was emptied or replaced since: its birth mark is another one. The task is
    lost unless a backup or an outbox has it."""


class LeaseLostError(LedgerError):
    """Another attempt owns the task, or nobody does; or a lock ran out under its holder. Its outcome was refused."""


class IllegalMoveError(LedgerError):
    """The record's state does not allow the move."""


class VersionConflictError(LedgerError):
    """The record changed since it was read. Read it again and decide anew."""


class IdempotencyConflictError(LedgerError):
    """Replay was refused: another task holds the idempotency key now."""


class CorruptRecordError(LedgerError):
    """The record exists but cannot be read: a field is missing or of the wrong type."""
