"""Payloads as people read and edit them: the body of the envelope, which is JSON `[[args], {kwargs}]`."""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec

from relier.cli.show import harmless
from relier.envelope import Envelope, open_envelope, seal
from relier.errors import PayloadIntegrityError
from relier.ledger.records import Record, Task


def envelope_of(payload: bytes) -> Envelope | None:
    try:
        return open_envelope(payload)
    except PayloadIntegrityError:
        return None


def describe(payload: bytes | None) -> dict[str, Any]:
    """A payload for programs: its body if it is an envelope, itself if it is JSON, else its bytes as text."""
    if payload is None:
        return {"kind": "none"}
    try:
        opened = open_envelope(payload)
    except PayloadIntegrityError as error:
        try:
            return {"kind": "json", "body": json.loads(payload), "problem": str(error)}
        except ValueError:
            return {"kind": "bytes", "body": payload.decode("utf-8", "backslashreplace"), "problem": str(error)}
    return {
        "kind": "envelope",
        "schema_version": opened.schema_version,
        "pushed_ms": opened.pushed_ms,
        "trace": opened.trace or None,
        "body": json.loads(opened.body),
    }


def pretty(payload: bytes | None) -> str:
    """A payload for people."""
    told = describe(payload)
    if told["kind"] == "none":
        return "(gone: it is kept only while the task may still run)"
    if told["kind"] == "bytes":
        return harmless(told["body"])
    return harmless(json.dumps(told["body"], indent=2, ensure_ascii=False))


def edited(task: Task, text: str, schema_version: int | None) -> bytes:
    """The new payload, with `text` as its body. It keeps the old one's schema version and trace, if readable."""
    body = _body(text)
    old = envelope_of(task.payload or b"")
    if old is None and schema_version is None:
        raise click.UsageError(
            f"the old payload of {task.record.id} cannot be read, so the schema version of its arguments is not known; "
            f"nothing was written; say it with --schema-version"
        )
    version = schema_version if schema_version is not None else old.schema_version if old else 0
    return seal(body, schema_version=version, pushed_ms=_pushed(task.record, old), trace=old.trace if old else "")


def _pushed(record: Record, old: Envelope | None) -> int:
    return old.pushed_ms if old else record.spec.at_us // 1000


def _body(text: str) -> bytes:
    """The JSON as it was typed, without white space. Read strictly: what Python's own parser lets pass (NaN) would be
    refused by every worker."""
    try:
        body = msgspec.json.decode(text)
        plain = msgspec.json.format(text.encode(), indent=-1)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise click.BadParameter(f"it is no JSON: {error}", param_hint="--payload") from error
    if not (isinstance(body, list) and len(body) == 2 and isinstance(body[0], list) and isinstance(body[1], dict)):
        raise click.BadParameter(
            'it must look like [["positional", 1], {"keyword": 2}]: what `rl dlq show --json` has under payload.body',
            param_hint="--payload",
        )
    return plain
