"""Encode the report that a pool process returns about an attempt, and turn it into an outcome for the ledger."""

from __future__ import annotations

from typing import Any

import msgspec
from kombu import serialization

from relier import codec
from relier.errors import RelierError
from relier.failure import Failure
from relier.ledger.records import Submission
from relier.run.outcome import Again, Done, Failed, Outcome

IN_BACKEND = b'{"celery:result":"in the backend"}'  # the part of a chord whose result is too large for the ledger
_WRAPPED = "celery:result"


class CeleryTaskError(RelierError):
    """Represent a failure of an adopted task whose exception class cannot be imported here."""


class TracerReport(msgspec.Struct, omit_defaults=True):
    """Report how an attempt ended. `state` is Celery's.

    `again`: what to run next under the same id, after `delay_ms`. `requeue`: run the task again without counting a
    failure.
    """

    state: str
    result: bytes | None = None
    failure: Failure | None = None
    follow_ups: tuple[Submission, ...] = ()
    part: bytes = b""
    again: Submission | None = None
    delay_ms: int = 0
    requeue: bool = False

    def outcome(self) -> Outcome:
        if self.again is not None or self.requeue:
            why = f"{self.failure.name}: {self.failure.message}" if self.failure else ""
            return Again(self.delay_ms, why, self.again, quiet=self.requeue)
        if self.failure is None:
            return Done(self.result, self.follow_ups)
        error = self.failure.rebuild() or CeleryTaskError(f"{self.failure.name}: {self.failure.message}")
        return Failed(error, True, self.failure, self.follow_ups, self.part)


def write_report(report: TracerReport) -> bytes:
    return msgspec.msgpack.encode(report)


def read_report(raw: bytes) -> TracerReport:
    return msgspec.msgpack.decode(raw, type=TracerReport)


def write_result(value: Any, serializer: str) -> bytes | None:
    """Encode a result with Celery's serializer: JSON as it is, other formats wrapped in JSON. Return None for None."""
    if value is None:
        return None
    content_type, encoding, body = serialization.dumps(value, serializer=serializer)
    if content_type == "application/json":
        return body.encode() if isinstance(body, str) else bytes(body)
    return codec.encode({_WRAPPED: [content_type, encoding, body]})


def read_result(raw: bytes | None) -> Any:
    if not raw:
        return None
    content_type, encoding, body = "application/json", "utf-8", raw
    if raw.startswith(b'{"' + _WRAPPED.encode()):
        content_type, encoding, body = codec.decode(raw)[_WRAPPED]
    return serialization.loads(body, content_type, encoding, accept=[content_type])
