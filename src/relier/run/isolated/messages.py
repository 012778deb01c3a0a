"""Define the messages between a worker and its isolated processes, and how they are written: a length, then msgpack."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from relier.errors import RelierError
from relier.failure import Failure, failure_of
from relier.ledger.records import Claimed
from relier.run.attempt import Attempt
from relier.run.outcome import Done, Failed, HandBack, Outcome, PutBack


class ParentMessage(msgspec.Struct, tag_field="do", tag=str.lower):
    """Represent a message from the parent."""


class Run(ParentMessage):
    claimed: Claimed
    trusted_until: float  # monotonic: one clock for all processes of a machine


class Trust(ParentMessage):
    """Report that the store answered the worker's heartbeat."""

    until: float


class Warn(ParentMessage):
    """Ask the child to call the soft-timeout hook."""


class Stop(ParentMessage):
    """Ask the child to cancel its attempt. `lost`: the attempt's lease is lost."""

    lost: bool = False


class ChildMessage(msgspec.Struct, tag_field="say", tag=str.lower):
    """Represent a message from the child about its attempt."""


class Waited(ChildMessage):
    """Report how long the attempt waited for the store (s), and when its current wait began (0 if there is none)."""

    past: float
    since: float


class ChildReport(ChildMessage):
    """Report the attempt's outcome: its result, or its failure.

    `final`: a retry cannot help. `retryable`: whether the task's retries cover the failure. `putback`: the child cannot
    run the task. `handback`: the attempt stopped without an outcome.
    """

    result: bytes | None = None
    failure: Failure | None = None
    final: bool = False
    retryable: bool | None = None
    putback: bool = False
    handback: bool = False


class Ready(msgspec.Struct):
    """Report that the child has imported its modules and entered its lifespan, if any. This is its first message."""

    has_lifespan: bool = False


class ChildError(RelierError):
    """Replace an error from an isolated process if the parent does not know the error's class."""


def pack(message: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "big") + body


async def unpack(reader: asyncio.StreamReader, kind: Any) -> Any:
    """Return the next message, or None at the end of the connection."""
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        return msgspec.msgpack.decode(await reader.readexactly(size), type=kind)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def report_of(outcome: Outcome) -> ChildReport:
    """Return the message that reports an outcome to the parent."""
    match outcome:
        case Done(result):
            return ChildReport(result)
        case Failed(error, final):
            return ChildReport(failure=failure_of(error), final=final, retryable=outcome.retryable)
        case PutBack(error):
            return ChildReport(failure=failure_of(error), putback=True)
        case _:
            return ChildReport(
                failure=failure_of(asyncio.CancelledError("the attempt was asked to stop")), handback=True
            )


def outcome_of(attempt: Attempt, report: ChildReport) -> Outcome:
    """Return the outcome that a child's report means for the parent's attempt."""
    if report.failure is None:
        return attempt.stop if isinstance(attempt.stop, Failed) else Done(report.result)
    if attempt.stop is not None:
        return attempt.stop
    if report.handback:
        return HandBack()
    error = report.failure.rebuild() or ChildError(f"{report.failure.name}: {report.failure.message}")
    if report.putback:
        return PutBack(error)
    return Failed(error, report.final, report.failure, retryable=report.retryable)
