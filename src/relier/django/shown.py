"""A row's payload and error for display: decrypted with this machine's keys, and redacted by RELIER_REDACT."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from relier.django.models import OutboxRow
from relier.envelope import open_envelope
from relier.errors import PayloadIntegrityError, RelierError
from relier.outbox.row import CELERY, Row, body_of
from relier.redact import shown
from relier.submit.client import default_client


def payload_of(row: OutboxRow) -> str:
    """Return the call as JSON, or the reason why it cannot be read."""
    body = bytes(row.body)
    if row.kind == CELERY:
        return redacted_text(row.name, _plain(_message_in(body)))
    try:
        task = body_of(Row(row.id, row.task_id, row.kind, row.name, row.queue, body, 0, row.claims, row.retries)).task
    except RelierError as error:
        return f"({error})"
    return call_text(task.payload, task.id, task.name)


def call_text(payload: bytes, task_id: str, name: str) -> str:
    """Return the call in a payload as JSON, or the reason why it cannot be read."""
    try:
        opened = open_envelope(payload, task_id=task_id, name=name, keyring=default_client().keyring)
    except PayloadIntegrityError as error:
        return f"({error})\n\n{redacted_text(name, _plain(payload))}"
    return redacted_text(name, json.loads(opened.body))


def error_of(row: OutboxRow) -> str:
    """Return the error of a row, redacted."""
    return redacted_text(row.name, row.error) if row.error else ""


def _message_in(body: bytes) -> bytes:
    """Return the arguments of a Celery message, as its serializer wrote them."""
    try:
        found = msgspec.msgpack.decode(body)["message"]["body"]
    except (msgspec.MsgspecError, ValueError, TypeError, LookupError):
        return body
    return found if isinstance(found, bytes) else str(found).encode()


def _plain(raw: bytes) -> Any:
    """Convert bytes for the redaction hook: to plain data if they are JSON, otherwise to text."""
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode("utf-8", "backslashreplace")


def redacted_text(name: str, value: Any) -> str:
    """Return a value of a task as people may see it."""
    settings = default_client().settings
    redacted = shown(settings, name, value)
    if isinstance(redacted, str):
        return redacted
    try:
        return json.dumps(redacted, indent=2, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return f"(hidden: {settings.redact} did not return plain data)"
