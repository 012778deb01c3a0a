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
    )
    from relier.lock import LockState, idempotency_lock
    from relier.options import Admit, PushOptions, Retries
    from relier.run.application.lifespan import lifespan
    from relier.run.application.middleware import use_middleware
    from relier.run.context import TaskContext
    from relier.run.current import task_context
    from relier.settings import Settings, get_settings
    from relier.store.call import Durability
    from relier.submit.client import Client, use_client
    from relier.submit.push_middleware import Push
    from relier.submit.receipt import SyncTaskReceipt, TaskReceipt, TaskState
    from relier.task.decorator import RlTask, rl_task
    from relier.task.pushable import Pushable

_HOMES = {
    "relier.arguments": (
        "INJECTED",
        "Depends",
    ),
    "relier.engines.hooks": ("use_hooks",),
    "relier.engines.task_events": ("TaskEvent",),
    "relier.errors": (
        "AdmissionRejectedError",
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
        "SchemaMigrationError",
        "StepJournalError",
        "StoreEmptiedError",
        "StoreDiskError",
        "StoreError",
        "StoreFullError",
        "StoreUnavailableError",
        "TaskCancelledError",
        "TaskDeadError",
        "TaskInFlightError",
        "TaskNotFoundError",
        "UnknownTaskError",
        "WorkerInitializationError",
    ),
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
    "relier.settings": (
        "Settings",
        "get_settings",
    ),
    "relier.store.call": ("Durability",),
    "relier.submit.client": (
        "Client",
        "use_client",
    ),
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
    "CheckpointStoreError",
    "CheckpointTooLargeError",
    "Client",
    "ConfigurationError",
    "Depends",
    "DuplicateTaskError",
    "Durability",
    "ExactlyOnceError",
    "HardTimeoutError",
    "IdempotencyInFlightError",
    "IndeterminateError",
    "InvalidSubmissionError",
    "LeaseLostError",
    "LockState",
    "MaxResurrectionsExceededError",
    "NotAwaitedError",
    "OutboxDatabaseError",
    "OutsideTransactionError",
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
    "SchemaMigrationError",
    "Settings",
    "StepJournalError",
    "StoreDiskError",
    "StoreEmptiedError",
    "StoreError",
    "StoreFullError",
    "StoreUnavailableError",
    "SyncTaskReceipt",
    "TaskCancelledError",
    "TaskContext",
    "TaskDeadError",
    "TaskEvent",
    "TaskInFlightError",
    "TaskNotFoundError",
    "TaskReceipt",
    "TaskState",
    "UnknownTaskError",
    "WorkerInitializationError",
    "get_settings",
    "idempotency_lock",
    "lifespan",
    "rl_task",
    "task_context",
    "use_client",
    "use_hooks",
    "use_middleware",
]
