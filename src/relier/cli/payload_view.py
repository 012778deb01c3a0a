"""Show and edit payloads and failures. The body of a payload is JSON: `[[args], {kwargs}]`.

Everything returned here is safe to show: decrypted with this machine's keys, then passed through RELIER_REDACT.
"""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec

from relier.cli.output import printable
from relier.cli.session import CommandFailure, Exit, Session
from relier.envelope import open_envelope, reseal
from relier.errors import PayloadIntegrityError
from relier.failure import read_failure, redacted, write_failure
from relier.ledger.records import Record, Task
from relier.redact import showing, shown
from relier.trace import parent_of


def describe(session: Session, task: Task) -> dict[str, Any]:
    """Return a payload as JSON data: the body of an envelope, other JSON as it is, anything else as text."""
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
        "trace": parent_of(opened.trace) or None,
        "body": _seen(session, record, json.loads(opened.body)),
    }


def pretty(session: Session, task: Task) -> str:
    """Return a payload as indented text."""
    described = describe(session, task)
    if described["kind"] == "none":
        return "(not kept: a payload is stored only while its task may still run)"
    if described["kind"] == "bytes":
        return printable(str(described["body"]))
    return printable(json.dumps(described["body"], indent=2, ensure_ascii=False))


def _seen(session: Session, record: Record, value: Any) -> Any:
    """Return the value as the redaction hook shows it, or a note that it is hidden if that cannot be printed."""
    visible = shown(session.settings, record.name, value)
    try:
        json.dumps(visible)
    except (TypeError, ValueError, RecursionError):
        return f"(hidden: {session.settings.redact} did not return plain data)"
    return visible


def message_in(session: Session, record: Record, detail: str) -> str:
    """Return the redacted message of one history entry."""
    return redacted(read_failure(detail), showing(session.settings.redact, record.name)).message


def with_redacted_failures(session: Session, task: Task) -> Task:
    """Return the task with redacted failures. Those stored before the hook was set have not been redacted yet."""
    show = showing(session.settings.redact, task.record.name)
    if show is None:
        return task
    history = tuple(
        msgspec.structs.replace(entry, detail=write_failure(redacted(read_failure(entry.detail), show)))
        for entry in task.history
    )
    return msgspec.structs.replace(task, history=history)


def editable(session: Session, task: Task) -> str:
    """Return the body of a payload as indented JSON, to be edited and sealed again.

    Raises if it cannot be read, or if redaction hides part of it: hidden values would be lost.
    """
    described = describe(session, task)
    instead = "use `rl dlq replay --payload` with the complete arguments"
    if described["kind"] != "envelope":
        said = described.get("problem", "it is not kept")
        raise CommandFailure(f"the payload of {task.record.id} cannot be edited: {said}; {instead}", Exit.PROBLEM)
    opened = open_envelope(task.payload or b"", task_id=task.record.id, name=task.record.name, keyring=session.keyring)
    if described["body"] != json.loads(opened.body):
        raise CommandFailure(
            f"the payload of {task.record.id} cannot be edited: {session.settings.redact} hides part of it; {instead}",
            Exit.PROBLEM,
        )
    return json.dumps(described["body"], indent=2, ensure_ascii=False) + "\n"


def edited(session: Session, task: Task, text: str, schema_version: int | None) -> bytes:
    """Return a new signed payload with `text` as its body.

    The new payload keeps the schema version and the trace of the old one, if the old one can be read and trusted.
    """
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
            f"the old payload of {record.id} cannot be read, so the schema version of its arguments is unknown; "
            f"nothing was written; pass --schema-version"
        ) from error


def _body(text: str) -> bytes:
    """Return the JSON without white space. It is read strictly: workers refuse NaN, which Python's parser accepts."""
    try:
        body = msgspec.json.decode(text)
        plain = msgspec.json.format(text.encode(), indent=-1)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise click.BadParameter(f"not valid JSON: {error}", param_hint="--payload") from error
    if not (isinstance(body, list) and len(body) == 2 and isinstance(body[0], list) and isinstance(body[1], dict)):
        raise click.BadParameter(
            'expected [["positional", 1], {"keyword": 2}], as `rl dlq show --json` prints it under payload.body',
            param_hint="--payload",
        )
    return plain
