"""Describe an error for a page: a status, what happened, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

import click

from relier.errors import (
    BatchNotFoundError,
    ConfigurationError,
    CorruptRecordError,
    IllegalMoveError,
    InvalidSubmissionError,
    PayloadTooLargeError,
    RelierError,
    ScheduleNotFoundError,
    StoreError,
    StoreReplyError,
    TaskNotFoundError,
    VersionConflictError,
)


class NotAllowedError(Exception):
    """A request without permission to change anything: it comes from a viewer or another site, or has no CSRF token."""


STATUS: tuple[tuple[type[Exception], int], ...] = (
    (NotAllowedError, 403),
    (TaskNotFoundError, 404),
    (BatchNotFoundError, 404),
    (ScheduleNotFoundError, 404),
    (VersionConflictError, 409),
    (IllegalMoveError, 409),
    (InvalidSubmissionError, 400),
    (PayloadTooLargeError, 400),
    (CorruptRecordError, 409),
    (ConfigurationError, 500),
    (StoreReplyError, 502),
    (StoreError, 503),
    (RelierError, 400),
    (click.UsageError, 400),
    (click.ClickException, 409),
)
TITLES = {
    400: "The request cannot be understood",
    403: "Not allowed",
    404: "Not found",
    409: "Nothing was changed",
    500: "The settings are wrong",
    502: "The store refused the request",
    503: "The store cannot be reached",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A status, what happened in a few words, and the details."""

    status: int
    title: str
    says: str


def problem_of(error: Exception) -> Problem | None:
    """Return what to show for an error of Relier or of a command, or None for a fault in the code."""
    status = next((status for kind, status in STATUS if isinstance(error, kind)), None)
    if status is None:
        return None
    message = error.message if isinstance(error, click.ClickException) else str(error)
    says = " ".join(message.split())
    return Problem(status, TITLES[status], f"{says[:1].upper()}{says[1:]}{'' if says.endswith('.') else '.'}")
