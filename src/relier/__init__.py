"""Relier: background work that cannot get lost. The public API, nothing else."""

from relier.errors import (
    AdmissionRejectedError,
    ConfigurationError,
    IdempotencyInFlightError,
    PushIndeterminate,
    RedisConnectionError,
    RelierError,
)
from relier.settings import Settings, get_settings

__all__ = [
    "AdmissionRejectedError",
    "ConfigurationError",
    "IdempotencyInFlightError",
    "PushIndeterminate",
    "RedisConnectionError",
    "RelierError",
    "Settings",
    "get_settings",
]
