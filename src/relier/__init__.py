"""Relier: background work that cannot get lost. The public API, nothing else.

Names are imported when they are first used: `rl --help` and a process that only pushes do not pay for the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relier.version import __version__ as __version__

if TYPE_CHECKING:
    from relier.arguments import INJECTED, Depends
    from relier.engines.hooks import use_hooks
    from relier.engines.task_events import TaskEvent
    from relier.errors import (
        AdmissionRejectedError,
        BatchClosedError,
        BatchNotFoundError,
        CheckpointStoreError,
        CheckpointTooLargeError,
        ConfigurationError,
        DuplicateTaskError,
        ExactlyOnceError,
        HardTimeoutError,
        IdempotencyInFlightError,
        IndeterminateError,
        InvalidSubmissionError,
        LeaseLostError,
        MaxResurrectionsExceededError,
        NotAwaitedError,
        OutboxDatabaseError,
        OutsideTransactionError,
        PartialPushError,
        PayloadEncodingError,
        PayloadIntegrityError,
        PayloadTooLargeError,
        PushIndeterminate,
        RedisConnectionError,
        RelierError,
        ResultTimeoutError,
        ScheduleConflictError,
        ScheduleDefinitionError,
        ScheduleNotFoundError,
        SchemaMigrationError,
        StepJournalError,
        StoreDiskError,
        StoreEmptiedError,
        StoreError,
        StoreFullError,
        StoreUnavailableError,
        TaskCancelledError,
        TaskDeadError,
        TaskInFlightError,
        TaskNotFoundError,
        UnknownTaskError,
        WorkerInitializationError,
        WorkflowCancelledError,
        WorkflowFailedError,
    )
    from relier.ledger.events.records import Event, Missed
    from relier.limits import Limit
    from relier.lock import LockState, idempotency_lock
    from relier.options import Admit, PushOptions, Retries
    from relier.run.application.lifespan import lifespan
    from relier.run.application.middleware import use_middleware
    from relier.run.context import TaskContext
    from relier.run.current import task_context
    from relier.schedules.api import AsyncSchedules, Schedules
    from relier.schedules.declared import schedule
    from relier.schedules.timings import At, Cron, Every
    from relier.schedules.views import ScheduleFiring, ScheduleInfo
    from relier.settings import Settings, get_settings
    from relier.store.call import Durability
    from relier.submit.client import Client, use_client
    from relier.submit.follow import events
    from relier.submit.progress import TaskProgress
    from relier.submit.push_middleware import Push
    from relier.submit.receipt import SyncTaskReceipt, TaskReceipt, TaskState
    from relier.task.decorator import RlTask, rl_task
    from relier.task.pushable import Pushable
    from relier.workflows.open_batch import OpenBatch, OwnBatch
    from relier.workflows.parts import Batch, Chain, Signature, batch, chain, group
    from relier.workflows.receipt import SyncWorkflowReceipt, WorkflowProgress, WorkflowReceipt

_HOMES = {
    "relier.arguments": (
        "INJECTED",
        "Depends",
    ),
    "relier.engines.hooks": ("use_hooks",),
    "relier.engines.task_events": ("TaskEvent",),
    "relier.errors": (
        "AdmissionRejectedError",
        "BatchClosedError",
        "BatchNotFoundError",
        "CheckpointStoreError",
        "CheckpointTooLargeError",
        "ConfigurationError",
        "DuplicateTaskError",
        "ExactlyOnceError",
        "HardTimeoutError",
        "IdempotencyInFlightError",
        "IndeterminateError",
        "InvalidSubmissionError",
        "LeaseLostError",
        "MaxResurrectionsExceededError",
        "NotAwaitedError",
        "OutboxDatabaseError",
        "OutsideTransactionError",
        "PartialPushError",
        "PayloadEncodingError",
        "PayloadIntegrityError",
        "PayloadTooLargeError",
        "PushIndeterminate",
        "RedisConnectionError",
        "RelierError",
        "ResultTimeoutError",
        "ScheduleConflictError",
        "ScheduleDefinitionError",
        "ScheduleNotFoundError",
        "SchemaMigrationError",
        "StepJournalError",
        "StoreDiskError",
        "StoreEmptiedError",
        "StoreError",
        "StoreFullError",
        "StoreUnavailableError",
        "TaskCancelledError",
        "TaskDeadError",
        "TaskInFlightError",
        "TaskNotFoundError",
        "UnknownTaskError",
        "WorkerInitializationError",
        "WorkflowCancelledError",
        "WorkflowFailedError",
    ),
    "relier.ledger.events.records": (
        "Event",
        "Missed",
    ),
    "relier.limits": ("Limit",),
    "relier.lock": (
        "LockState",
        "idempotency_lock",
    ),
    "relier.options": (
        "Admit",
        "PushOptions",
        "Retries",
    ),
    "relier.task.pushable": ("Pushable",),
    "relier.run.context": ("TaskContext",),
    "relier.run.current": ("task_context",),
    "relier.run.application.lifespan": ("lifespan",),
    "relier.run.application.middleware": ("use_middleware",),
    "relier.schedules.api": (
        "AsyncSchedules",
        "Schedules",
    ),
    "relier.schedules.declared": ("schedule",),
    "relier.schedules.timings": (
        "At",
        "Cron",
        "Every",
    ),
    "relier.schedules.views": (
        "ScheduleFiring",
        "ScheduleInfo",
    ),
    "relier.settings": (
        "Settings",
        "get_settings",
    ),
    "relier.store.call": ("Durability",),
    "relier.submit.client": (
        "Client",
        "use_client",
    ),
    "relier.submit.follow": ("events",),
    "relier.submit.progress": ("TaskProgress",),
    "relier.submit.push_middleware": ("Push",),
    "relier.submit.receipt": (
        "SyncTaskReceipt",
        "TaskReceipt",
        "TaskState",
    ),
    "relier.task.decorator": (
        "RlTask",
        "rl_task",
    ),
    "relier.workflows.open_batch": (
        "OpenBatch",
        "OwnBatch",
    ),
    "relier.workflows.parts": (
        "Batch",
        "Chain",
        "Signature",
        "batch",
        "chain",
        "group",
    ),
    "relier.workflows.receipt": (
        "SyncWorkflowReceipt",
        "WorkflowProgress",
        "WorkflowReceipt",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'relier' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "INJECTED",
    "AdmissionRejectedError",
    "Admit",
    "AsyncSchedules",
    "At",
    "Batch",
    "BatchClosedError",
    "BatchNotFoundError",
    "Chain",
    "CheckpointStoreError",
    "CheckpointTooLargeError",
    "Client",
    "ConfigurationError",
    "Cron",
    "Depends",
    "DuplicateTaskError",
    "Durability",
    "Event",
    "Every",
    "ExactlyOnceError",
    "HardTimeoutError",
    "IdempotencyInFlightError",
    "IndeterminateError",
    "InvalidSubmissionError",
    "LeaseLostError",
    "Limit",
    "LockState",
    "MaxResurrectionsExceededError",
    "Missed",
    "NotAwaitedError",
    "OpenBatch",
    "OutboxDatabaseError",
    "OutsideTransactionError",
    "OwnBatch",
    "PartialPushError",
    "PayloadEncodingError",
    "PayloadIntegrityError",
    "PayloadTooLargeError",
    "Push",
    "PushIndeterminate",
    "PushOptions",
    "Pushable",
    "RedisConnectionError",
    "RelierError",
    "ResultTimeoutError",
    "Retries",
    "RlTask",
    "ScheduleConflictError",
    "ScheduleDefinitionError",
    "ScheduleFiring",
    "ScheduleInfo",
    "ScheduleNotFoundError",
    "Schedules",
    "SchemaMigrationError",
    "Settings",
    "Signature",
    "StepJournalError",
    "StoreDiskError",
    "StoreEmptiedError",
    "StoreError",
    "StoreFullError",
    "StoreUnavailableError",
    "SyncTaskReceipt",
    "SyncWorkflowReceipt",
    "TaskCancelledError",
    "TaskContext",
    "TaskDeadError",
    "TaskEvent",
    "TaskInFlightError",
    "TaskNotFoundError",
    "TaskProgress",
    "TaskReceipt",
    "TaskState",
    "UnknownTaskError",
    "WorkerInitializationError",
    "WorkflowCancelledError",
    "WorkflowFailedError",
    "WorkflowProgress",
    "WorkflowReceipt",
    "batch",
    "chain",
    "events",
    "get_settings",
    "group",
    "idempotency_lock",
    "lifespan",
    "rl_task",
    "schedule",
    "task_context",
    "use_client",
    "use_hooks",
    "use_middleware",
]
