"""Relier: background work that cannot get lost. The public API, nothing else."""

from relier.errors import (
    AdmissionRejectedError,
    ConfigurationError,
    HardTimeoutError,
    IdempotencyInFlightError,
    LeaseLostError,
    MaxResurrectionsExceededError,
    PartialPushError,
    PayloadEncodingError,
    PayloadIntegrityError,
    PayloadTooLargeError,
    PushIndeterminate,
    RedisConnectionError,
    RelierError,
    ResultTimeoutError,
    TaskCancelledError,
    TaskDeadError,
    TaskNotFoundError,
    UnknownTaskError,
    WorkerInitializationError,
)
from relier.options import Retries
from relier.run.context import TaskContext, task_context
from relier.settings import Settings, get_settings
from relier.store.call import Durability
from relier.submit.client import Client, use_client
from relier.submit.receipt import SyncTaskReceipt, TaskReceipt, TaskState
from relier.task import RlTask, rl_task

__all__ = [
    "AdmissionRejectedError",
    "Client",
    "ConfigurationError",
    "Durability",
    "HardTimeoutError",
    "IdempotencyInFlightError",
    "LeaseLostError",
    "MaxResurrectionsExceededError",
    "PartialPushError",
    "PayloadEncodingError",
    "PayloadIntegrityError",
    "PayloadTooLargeError",
    "PushIndeterminate",
    "RedisConnectionError",
    "RelierError",
    "ResultTimeoutError",
    "Retries",
    "RlTask",
    "Settings",
    "SyncTaskReceipt",
    "TaskCancelledError",
    "TaskContext",
    "TaskDeadError",
    "TaskNotFoundError",
    "TaskReceipt",
    "TaskState",
    "UnknownTaskError",
    "WorkerInitializationError",
    "get_settings",
    "rl_task",
    "task_context",
    "use_client",
]
