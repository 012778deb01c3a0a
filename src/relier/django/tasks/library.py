"""The library that defines tasks: Django's own since 6.0, else the package django-tasks."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured

try:
    from django.tasks import base, exceptions, signals
    from django.tasks.backends.base import BaseTaskBackend
    from django.utils.json import normalize_json
except ImportError:
    try:
        from django_tasks import base, exceptions, signals
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.utils import normalize_json
    except ImportError as error:
        raise ImproperlyConfigured(
            "relier.django.tasks needs Django 6.0 or newer, or the package django-tasks; install one of them"
        ) from error

TASK_MAX_PRIORITY: int = base.TASK_MAX_PRIORITY
TaskContext: Any = base.TaskContext
TaskError: Any = base.TaskError
TaskResult: Any = base.TaskResult
TaskResultStatus: Any = base.TaskResultStatus
TaskResultDoesNotExist: Any = exceptions.TaskResultDoesNotExist

__all__ = [
    "TASK_MAX_PRIORITY",
    "BaseTaskBackend",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "signals",
]
