"""Payloads and failures as people read and edit them. A payload is the body of its envelope, JSON `[[args], {kwargs}]`.

Everything here is what people may see: decrypted with this machine's keys, and passed by the hook of RELIER_REDACT.
"""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec

from relier.cli.output import harmless
from relier.cli.session import Session
from relier.envelope import open_envelope, reseal
from relier.errors import PayloadIntegrityError
from relier.failure import read_failure, redacted, write_failure
from relier.ledger.records import Record, Task
from relier.redact import showing, shown


def describe(session: Session, task: Task) -> dict[str, Any]:
    """A payload for programs: its body if it is an envelope, itself if it is JSON, else its bytes as text."""
    payload, record = task.payload, task.record
    if payload is None:
        return {"kind": "none"}
    try:
        opened = open_envelope(payload, task_id=record.id, name=record.name, keyring=session.keyring)
    except PayloadIntegrityError as error:
        try:
            return {"kind": "json", "body": _seen(session, record, json.loads(payload)), "problem": str(error)}
        except ValueError:
            text = payload.decode("utf-8", "backslashreplace")
            return {"kind": "bytes", "body": _seen(session, record, text), "problem": str(error)}
    return {
        "kind": "envelope",
        "schema_version": opened.schema_version,
        "pushed_ms": opened.pushed_ms,
        "trace": opened.trace or None,
        "body": _seen(session, record, json.loads(opened.body)),
    }


def pretty(session: Session, task: Task) -> str:
    """A payload for people."""
    told = describe(session, task)
    if told["kind"] == "none":
        return "(gone: it is kept only while the task may still run)"
    if told["kind"] == "bytes":
        return harmless(str(told["body"]))
    return harmless(json.dumps(told["body"], indent=2, ensure_ascii=False))


def _seen(session: Session, record: Record, value: Any) -> Any:
    """What may be shown of it, if that can be printed."""
    told = shown(session.settings, record.name, value)
    try:
        json.dumps(told)
    except (TypeError, ValueError, RecursionError):
        return f"(hidden: {session.settings.redact} returned what is no plain data)"
    return told


def message_in(session: Session, record: Record, detail: str) -> str:
    """The message of one line of a task's history."""
    return redacted(read_failure(detail), showing(session.settings.redact, record.name)).message


def with_failures_seen(session: Session, task: Task) -> Task:
    """The task with its failures as people may see them. Those kept before there was a hook have not passed it yet."""
    show = showing(session.settings.redact, task.record.name)
    if show is None:
        return task
    history = tuple(
        msgspec.structs.replace(entry, detail=write_failure(redacted(read_failure(entry.detail), show)))
        for entry in task.history
    )
    return msgspec.structs.replace(task, history=history)


def edited(session: Session, task: Task, text: str, schema_version: int | None) -> bytes:
    """The new payload, with `text` as its body, signed anew. It keeps the old one's schema version and trace, where
    that can be read and trusted."""
    body, record = _body(text), task.record
    try:
        return reseal(
            task.payload or b"",
            body,
            record.id,
            record.name,
            session.keyring,
            schema_version=schema_version,
            pushed_ms=record.spec.at_us // 1000,
        )
    except PayloadIntegrityError as error:
        raise click.UsageError(
            f"the old payload of {record.id} cannot be read, so the schema version of its arguments is not known; "
            f"nothing was written; say it with --schema-version"
        ) from error


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
