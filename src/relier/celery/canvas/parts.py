"""Deliver the part of a chord member to the chord's join, with the member's commit."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from celery import states

from relier import codec
from relier.celery.adoption import adoption_of
from relier.celery.canvas.errbacks import CALLED_ERRBACKS
from relier.celery.canvas.nesting import count_parts_of
from relier.celery.messages import internal_message
from relier.celery.sending.collect import ADDED, Collector
from relier.celery.sending.publish import queue_of
from relier.celery.sending.spread import BATCH_SHARE
from relier.celery.working.report import IN_BACKEND, TracerReport, write_result
from relier.ledger.records import Join, Submission

log = logging.getLogger("relier.celery")

JOIN_TASK = "relier.chord"
PART_TASK = "relier.part"
RECHECK_S = 3600.0  # an incomplete join counts its parts again after this time, and keeps waiting
TOMBSTONE_MS = 7 * 86_400_000  # a member that is replayed later than this would open the join again
FAILED = b"!"  # the first byte of a failed part; a result is JSON and never starts with it
PARTS_PER_COMMIT = 100  # how many parts one commit delivers for a group that will not run
MAX_ERROR_LENGTH = 65_536  # of an error, as text or as the result backend would store it
MAX_ID_BYTES = 40  # the longest id for which a part's name is within the ledger's limit; Celery's own ids have 36


def join_part(app: Any, collector: Collector, request: Any, state: str, result: Any) -> None:
    """Deliver this attempt's part of its chord with the end of the attempt."""
    member = [request.group, request.group_index or 0, request.id, request.root_id]
    collector.is_added = is_added(request)
    parts = count_parts_of(request)
    if not fits_in_part_name(collector.record_id) or parts > PARTS_PER_COMMIT:
        more = (collector.added, collector.is_added, parts)
        collector.follow_ups += part_tasks(app, request, state, result, collector.queue, *more)
        return
    _deliver_parts(app, collector, request.chord, *member, parts=parts)
    if state != states.SUCCESS:
        collector.part = _failed_part_of(app, request, result)


def is_added(request: Any) -> bool:
    """Return whether a member was added by add_to_chord. Earlier releases marked this in a header."""
    return bool(request.chord.get(ADDED) or request.get(ADDED))


def send_part(app: Any, request: Any, state: str, result: Any) -> None:
    """Deliver the part of a chord member that is not adopted, by submitting tasks `relier.part`."""
    queue = queue_of(app, request.delivery_info or {}) or app.conf.task_default_queue
    for task in part_tasks(app, request, state, result, queue, 0, is_added(request), count_parts_of(request)):
        adoption_of(app).submit(task)


def part_tasks(
    app: Any, request: Any, state: str, result: Any, queue: str, added: int, is_added: bool, parts: int
) -> Iterator[Submission]:
    """Yield the tasks that deliver the parts of a member, each with no more parts than one commit takes.

    `added` is the number of members that this member added to the chord. `is_added`: this member was added itself.
    """
    value = _failed_part_of(app, request, result) if state != states.SUCCESS else None
    for nth, first in enumerate(range(0, parts, PARTS_PER_COMMIT)):
        record_id = f"{part_id(request.id)}{nth or ''}"
        member = [request.group, (request.group_index or 0) + first, request.id, request.root_id]
        more = (0 if nth else added, is_added, min(parts - first, PARTS_PER_COMMIT))
        member += () if more == (0, False, 1) else more  # earlier releases cannot read more than four
        raw = _part_value(app, request, record_id, result) if value is None else value
        args = (base64.b64encode(raw).decode(), request.chord, *member)
        message = internal_message(PART_TASK, record_id, args, request.root_id, request.id, app.conf.task_serializer)
        yield adoption_of(app).submission(message, queue, None)


def _part_value(app: Any, request: Any, record_id: str, result: Any) -> bytes:
    most = int(adoption_of(app).client.settings.max_payload_bytes * BATCH_SHARE)
    value = result_to_store(app, record_id, result, joins=True, most=most) or b""
    return backend_reference(request.id) if value == IN_BACKEND else value


def fits_in_part_name(task_id: str) -> bool:
    """Return whether a task's id is short enough for the name of a part."""
    return len(task_id.encode()) <= MAX_ID_BYTES


def part_record_id(task_id: str) -> str:
    """Return the id of the record that delivers a task's part to its chord, unless the task was replaced."""
    return task_id if fits_in_part_name(task_id) else part_id(task_id)


def part_id(task_id: str) -> str:
    """Return the id of the task `relier.part` that delivers the part of a task."""
    if not fits_in_part_name(task_id):
        task_id = hashlib.blake2b(task_id.encode(), digest_size=16).hexdigest()
    return f"{task_id}.part"


def run_part(
    app: Any,
    collector: Collector,
    request: dict[str, Any],  # noqa: ARG001
    value: str,
    body: Any,
    *member: Any,
) -> TracerReport:
    """Run `relier.part`: deliver the part that its message holds."""
    member, (collector.added, collector.is_added, *parts) = member[:4], member[4:] or (0, False)
    _deliver_parts(app, collector, body, *member, parts=parts[0] if parts else 1)
    return TracerReport(states.SUCCESS, base64.b64decode(value) or None, follow_ups=tuple(collector.follow_ups))


def failed_part(member: str, error: Any, stored: bytes = b"", called: Sequence[str] = ()) -> bytes:
    """Return the part of a member that failed: its id, and its error as text and as the result backend would store it.

    `called` lists the marks of the error callbacks that have already run.
    """
    fields = [member, repr(error)[:MAX_ERROR_LENGTH], stored if len(stored) <= MAX_ERROR_LENGTH else b""]
    return FAILED + codec.encode([*fields, list(called)] if called else fields)


def _failed_part_of(app: Any, request: Any, error: Any) -> bytes:
    try:
        stored = write_result(app.backend.prepare_exception(error), app.conf.result_serializer) or b""
    except Exception:  # a serializer may raise anything
        log.info("error not serializable, chord gets it as text: task=%s", request.id, exc_info=True)
        stored = b""
    return failed_part(request.id, error, stored, request.get(CALLED_ERRBACKS) or ())


def backend_reference(task_id: str) -> bytes:
    """Return a part that says the result of a member is in the result backend.

    The name of the part usually identifies the member. If it cannot, the reference does.
    """
    is_in_name = fits_in_part_name(task_id) and "." not in task_id
    return IN_BACKEND if is_in_name else IN_BACKEND[:-1] + b',"id":' + codec.encode(task_id) + b"}"


def result_to_store(app: Any, record_id: str, value: Any, *, joins: bool, most: int | None = None) -> bytes | None:
    """Return a result as the ledger stores it, or None if the ledger cannot store it.

    `joins`: the result is a part of a chord. If it has more than `most` bytes, the part refers to the result backend.
    """
    try:
        raw = write_result(value, app.conf.result_serializer)
    except Exception:  # a serializer may raise anything; the app's result backend has reported the error
        log.info("result not stored, not serializable: task=%s", record_id, exc_info=True)
        return None
    client = adoption_of(app).client
    if raw is not None and client.keyring.encrypts:
        raw = client.keyring.wrap(raw, record_id, "result")
    if raw is not None and len(raw) > (most or client.settings.max_payload_bytes):
        log.info("result not stored, larger than RELIER_MAX_PAYLOAD_BYTES: task=%s bytes=%d", record_id, len(raw))
        return IN_BACKEND if joins else None
    return raw


def _deliver_parts(
    app: Any, collector: Collector, body: Any, group: str, index: int, member: str, root: str | None, *, parts: int = 1
) -> None:
    """Add the chord's join to the follow-ups of an attempt, with the attempt's part.

    An attempt that represents a group that will not run delivers one part for each member of the group.
    """
    message = internal_message(JOIN_TASK, f"{group}.chord", (body,), root, member, app.conf.task_serializer)
    task = adoption_of(app).submission(message, collector.queue, None)
    suffix = f"{'x' * collector.is_added}{collector.added or ''}"
    for nth in range(parts):
        part = f"{index + nth:09d}.{collector.record_id}{suffix and '+' + suffix}"
        join = Join(int(body["chord_size"]) + collector.added, part)
        delay_ms = int(RECHECK_S * 1000)
        collector.follow_ups.append(
            msgspec.structs.replace(task, delay_ms=delay_ms, join=join, tomb_ttl_ms=TOMBSTONE_MS)
        )
