"""Relier as a backend of Django's tasks: `django.tasks` of Django 6, or the package `django-tasks` for Django 5.2.

    TASKS = {"default": {"BACKEND": "relier.django.tasks.RelierBackend"}}

library.py   which of the two is used                 results.py   a record of the ledger as a TaskResult
backend.py   enqueue and get_result                   body.py      how a worker runs such a task

The backend is imported on first use. This module itself can always be imported: tools that look for modules named
`tasks` in all apps import it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relier.django.tasks.backend import RelierBackend

__all__ = ["RelierBackend"]


def __getattr__(name: str) -> Any:
    if name == "RelierBackend":
        from relier.django.tasks.backend import RelierBackend

        return RelierBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
