"""Chords join in the ledger. The app's result backend stays what it is, a mirror: only its counting of a chord's parts
is replaced, because a count that is made before the commit is made twice when a worker dies in between.

Each member of the header brings its result as a part of a record of its own, `<group>.chord`, with its commit; the
commit that brings the last part lets that record run, and it starts the body. A member that fails for good brings its
failure instead, and the body is told by its error callbacks, as Celery does it. A member may add members to its chord:
then its part says how many, theirs say that they were added, and the join waits for as many more. A member that is not
adopted has no commit: its part is brought by a task `relier.part`, which does nothing else. So is that of a member
whose id is too long for the name of a part: the task has a short one.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from celery import states
from celery._state import _task_stack
from celery.app.task import Context
from celery.canvas import maybe_signature
from celery.exceptions import ChordError
from celery.utils.saferepr import saferepr

from relier import codec
from relier.celery.adoption import adoption_of
from relier.celery.canvas.errbacks import CALLED, leave_out, marks_of
from relier.celery.canvas.nesting import (
    NESTED,
    arranged,
    awaited_by,
    is_group,
    is_nested,
    kept_tree,
    leaves,
    parts_of,
)
from relier.celery.canvas.parts import is_outage, is_too_large, put_aside
from relier.celery.compat import save_result_tree
from relier.celery.messages import internal_message
from relier.celery.sending.collect import ADDED, Collector, running
from relier.celery.sending.publish import queue_of
from relier.celery.sending.spread import ROOM, spread
from relier.celery.working.report import IN_BACKEND, TracerReport, read_result, write_result
from relier.errors import PayloadTooLargeError
from relier.failure import failure_of
from relier.ledger.records import Join, Submission

log = logging.getLogger("relier.celery")

JOIN_TASK = "relier.chord"
PART_TASK = "relier.part"
DEADLINE_S = 3600.0  # a join that is not complete by then looks again, and waits on
TOMB_MS = 7 * 86_400_000  # a member that is replayed later than that would open the join again
LOOK_AGAIN_S = 60.0  # at the latest
Parts = list[tuple[str, bytes]]  # by name, in order
FAILED = b"!"  # no result begins so: a result is JSON
PARTS_AT_ONCE = 100  # of a group that will not run, with one end
LONGEST_WHY = 65_536  # of an error, in words or as the backend keeps it
LONGEST_ID = 40  # with the rest of a part's name it is as long as the ledger allows; Celery's own ids have 36


def backend_class(base: type[Any]) -> type[Any]:
    """The app's own backend class, whose chords join in the ledger."""

    class LedgerBackend(base):
        def apply_chord(self, header_result_args: Any, body: Any, **_: Any) -> Any:
            self.ensure_chords_allowed()  # and no count in the backend, nor celery.chord_unlock to poll for it
            header = self.app.GroupResult(*header_result_args)
            body["chord_size"] = sum(1 for _ in leaves(header))
            if is_nested(header):
                body[NESTED] = True
                save_result_tree(self, header)

        def on_chord_part_return(self, request: Any, state: str, result: Any, **kwargs: Any) -> Any:
            collector = running()
            if not request.group or not (request.chord or {}).get("chord_size"):
                return super().on_chord_part_return(request, state, result, **kwargs)
            if collector is None:
                send_part(self.app, request, state, result)
            else:
                join_part(self.app, collector, request, state, result)
            return None

        def add_to_chord(self, group_id: str, result: Any) -> Any:
            collector = running()
            if collector is None:
                return super().add_to_chord(group_id, result)
            collector.added += 1
            return None

        def __reduce__(self, *args: Any) -> Any:
            """As the app's own, which is known by name: with a result that travels it is asked, and joins nothing."""
            rebuild, (_, *how) = super().__reduce__(*args)
            return rebuild, (base, *how)

    return LedgerBackend


def join_part(app: Any, collector: Collector, request: Any, state: str, result: Any) -> None:
    """This attempt is a part of a chord: its end brings it there."""
    told = [request.group, request.group_index or 0, request.id, request.root_id]
    collector.is_added = is_added(request)
    parts = parts_of(request)
    if not fits(collector.record_id) or parts > PARTS_AT_ONCE:
        more = (collector.added, collector.is_added, parts)
        collector.follow_ups += part_tasks(app, request, state, result, collector.queue, *more)
        return
    _bring(app, collector, request.chord, *told, parts=parts)
    if state != states.SUCCESS:
        collector.part = _failed_part(app, request, result)


def is_added(request: Any) -> bool:
    """Return whether a member was added by add_to_chord. Earlier releases marked this in a header."""
    return bool(request.chord.get(ADDED) or request.get(ADDED))


def send_part(app: Any, request: Any, state: str, result: Any) -> None:
    """A part of a chord that is no task of ours."""
    queue = queue_of(app, request.delivery_info or {}) or app.conf.task_default_queue
    for task in part_tasks(app, request, state, result, queue, 0, is_added(request), parts_of(request)):
        adoption_of(app).submit(task)


def part_tasks(
    app: Any, request: Any, state: str, result: Any, queue: str, added: int, is_added: bool, parts: int
) -> Iterator[Submission]:
    """Tasks that bring the parts of a member, each no more than one commit takes. `added`: how many members it added;
    `is_added`: whether it is such a one."""
    value = _failed_part(app, request, result) if state != states.SUCCESS else None
    for nth, first in enumerate(range(0, parts, PARTS_AT_ONCE)):
        record_id = f"{part_id(request.id)}{nth or ''}"
        told = [request.group, (request.group_index or 0) + first, request.id, request.root_id]
        more = (0 if nth else added, is_added, min(parts - first, PARTS_AT_ONCE))
        told += () if more == (0, False, 1) else more  # as earlier releases read it
        kept = _part_value(app, request, record_id, result) if value is None else value
        args = (base64.b64encode(kept).decode(), request.chord, *told)
        message = internal_message(PART_TASK, record_id, args, request.root_id, request.id, app.conf.task_serializer)
        yield adoption_of(app).submission(message, queue, None)


def _part_value(app: Any, request: Any, record_id: str, result: Any) -> bytes:
    most = int(adoption_of(app).client.settings.max_payload_bytes * ROOM)
    value = kept_result(app, record_id, result, joins=True, most=most) or b""
    return in_backend(request.id) if value == IN_BACKEND else value


def fits(task_id: str) -> bool:
    return len(task_id.encode()) <= LONGEST_ID


def record_of(task_id: str) -> str:
    """Return the record that delivers a task's part to its chord, unless the task was replaced."""
    return task_id if fits(task_id) else part_id(task_id)


def part_id(task_id: str) -> str:
    """The id of the task that brings a part."""
    if not fits(task_id):
        task_id = hashlib.blake2b(task_id.encode(), digest_size=16).hexdigest()
    return f"{task_id}.part"


@contextmanager
def as_current_task(task: Any, task_id: str) -> Iterator[None]:
    """What is sent meanwhile are children of a task: plain Celery tells of a chord's failure inside one of its members,
    and keeps its error callbacks as children of the body."""
    _task_stack.push(task)
    task.request_stack.push(Context({"id": task_id, "called_directly": False, "children": []}))
    try:
        yield
    finally:
        task.request_stack.pop()
        _task_stack.pop()


def run_part(
    app: Any,
    collector: Collector,
    request: dict[str, Any],  # noqa: ARG001
    value: str,
    body: Any,
    *told: Any,
) -> TracerReport:
    """What `relier.part` does: bring what it holds."""
    told, (collector.added, collector.is_added, *parts) = told[:4], told[4:] or (0, False)
    _bring(app, collector, body, *told, parts=parts[0] if parts else 1)
    return TracerReport(states.SUCCESS, base64.b64decode(value) or None, follow_ups=tuple(collector.follow_ups))


def failed_part(member: str, error: Any, kept: bytes = b"", called: Sequence[str] = ()) -> bytes:
    """Who failed, and how: in words, and as the result backend would keep it. `called`: which error callbacks were."""
    told = [member, repr(error)[:LONGEST_WHY], kept if len(kept) <= LONGEST_WHY else b""]
    return FAILED + codec.encode([*told, list(called)] if called else told)


def _failed_part(app: Any, request: Any, error: Any) -> bytes:
    try:
        kept = write_result(app.backend.prepare_exception(error), app.conf.result_serializer) or b""
    except Exception:  # a serializer may raise anything
        log.info("the error of %s cannot be serialized; its chord gets it in words", request.id, exc_info=True)
        kept = b""
    return failed_part(request.id, error, kept, request.get(CALLED) or ())


def in_backend(task_id: str) -> bytes:
    """That the result of a member is there. Mostly the name of its part says which member it is."""
    is_told = fits(task_id) and "." not in task_id
    return IN_BACKEND if is_told else IN_BACKEND[:-1] + b',"id":' + codec.encode(task_id) + b"}"


def kept_result(app: Any, record_id: str, value: Any, *, joins: bool, most: int | None = None) -> bytes | None:
    """A result as the ledger keeps it, where it has room for that many bytes."""
    try:
        raw = write_result(value, app.conf.result_serializer)
    except Exception:  # a serializer may raise anything; whoever wants results has a backend, and that has complained
        log.info("the result of %s cannot be serialized and is not kept", record_id, exc_info=True)
        return None
    client = adoption_of(app).client
    if raw is not None and client.keyring.encrypts:
        raw = client.keyring.wrap(raw, record_id, "result")
    if raw is not None and len(raw) > (most or client.settings.max_payload_bytes):
        log.info("the result of %s is larger than RELIER_MAX_PAYLOAD_BYTES and not kept", record_id)
        return IN_BACKEND if joins else None
    return raw


def _bring(
    app: Any, collector: Collector, body: Any, group: str, index: int, member: str, root: str | None, *, parts: int = 1
) -> None:
    """With its end an attempt names the join, and leaves its part; several where it stands for a group that will not
    run."""
    message = internal_message(JOIN_TASK, f"{group}.chord", (body,), root, member, app.conf.task_serializer)
    task = adoption_of(app).submission(message, collector.queue, None)
    suffix = f"{'x' * collector.is_added}{collector.added or ''}"
    for nth in range(parts):
        part = f"{index + nth:09d}.{collector.record_id}{suffix and '+' + suffix}"
        join = Join(int(body["chord_size"]) + collector.added, part)
        delay_ms = int(DEADLINE_S * 1000)
        collector.follow_ups.append(msgspec.structs.replace(task, delay_ms=delay_ms, join=join, tomb_ttl_ms=TOMB_MS))


def run_join(app: Any, collector: Collector, request: dict[str, Any], body: Any, looked: int = 0) -> TracerReport:
    """What `relier.chord` does: start the chord's body, or tell that it cannot be."""
    parts = sorted(collector.parts.items())
    if len(parts) < int(body["chord_size"]) + _added([name for name, _ in parts]):
        return _look_again(app, collector, request, body, looked)
    try:
        return _start_body(app, collector, request, body, parts)
    except Exception as error:
        if not is_outage(app, error):
            raise
        log.warning("the chord of %s waits for the result backend: %s", request["id"], error)
        return _look_again(app, collector, request, body, looked)


def _start_body(app: Any, collector: Collector, request: dict[str, Any], body: Any, parts: Parts) -> TracerReport:
    callback = maybe_signature(body, app=app)
    try:
        header = kept_tree(app, request["id"].removesuffix(".chord")) if body.get(NESTED) else None
        values = _values(app, parts) if header is None else _nested_values(app, header, parts)
        _send_body(app, collector, request, callback, values, aside=is_too_large(app, parts))
    except Exception as error:  # whatever it is, the body will not run, and who waits for it is told
        if is_outage(app, error):
            raise
        if not isinstance(error, ChordError):
            log.exception("the chord of %s cannot start its body", request["id"])
        return _fail_body(app, collector, callback, error, _called(parts))
    return TracerReport(states.SUCCESS, follow_ups=spread(adoption_of(app), collector))


def _send_body(
    app: Any, collector: Collector, request: dict[str, Any], callback: Any, values: list[Any], *, aside: bool
) -> None:
    whose = {"root_id": request.get("root_id"), "parent_id": request.get("parent_id")}
    if not aside:
        try:
            callback.apply_async((values,), **whose)
        except PayloadTooLargeError:
            collector.follow_ups.clear()
        else:
            return
    if callback.subtask_type in (None, "group"):  # what people see are the values
        whose["argsrepr"] = saferepr((values, *callback.args), app.amqp.argsrepr_maxsize)
    callback.apply_async((put_aside(app, request["id"].removesuffix(".chord"), values),), **whose)


def _fail_body(app: Any, collector: Collector, callback: Any, error: Exception, called: set[str]) -> TracerReport:
    """Record that the body will not run. An outer chord gets its failed part; plain Celery would leave it waiting.
    `called`: the error callbacks that chords in its header have called."""
    calls = called | marks_of(callback)
    leave_out(callback, called)
    with as_current_task(app.tasks[JOIN_TASK], collector.record_id):
        app.backend.chord_error_from_stack(callback=callback, exc=error)
    part = awaited_by(callback)
    if part is not None:
        part.update({CALLED: sorted(calls)})
        app.backend.on_chord_part_return(part, states.FAILURE, error)
    follow_ups = spread(adoption_of(app), collector)
    return TracerReport(states.FAILURE, failure=failure_of(error), follow_ups=follow_ups, part=collector.part)


def _look_again(app: Any, collector: Collector, request: dict[str, Any], body: Any, looked: int) -> TracerReport:
    """Its parts are not all there. The next one rings, unless it comes right now, while this runs: so soon, then less
    and less often."""
    args, root, parent = (body, looked + 1), request.get("root_id"), request.get("parent_id")
    message = internal_message(JOIN_TASK, request["id"], args, root, parent, app.conf.task_serializer)
    again = adoption_of(app).submission(message, collector.queue, None)
    delay_ms = int(1000 * min(LOOK_AGAIN_S, 0.2 * 4**looked))
    return TracerReport(states.RETRY, again=again, requeue=True, delay_ms=delay_ms)


def _added(parts: list[str]) -> int:
    """How many members are known to have been added: by those who did it, or by themselves, whoever came first."""
    told = [name.partition("+")[2] for name in parts]
    return max(sum(int(suffix.lstrip("x") or 0) for suffix in told), sum(suffix.startswith("x") for suffix in told))


def _values(app: Any, parts: Parts) -> list[Any]:
    for _, raw in parts:
        if raw.startswith(FAILED):
            member, why, error = _failure(app, raw)
            raise ChordError(f"Dependency {member} raised {why}") from error
    return [_value(app, name, raw) for name, raw in parts]


def _nested_values(app: Any, header: Any, parts: Parts) -> list[Any]:
    """As plain Celery joins a result tree: in it failures of groups are met first, and told in these words."""
    alone = {record_of(result.id) for result in header.results if not is_group(result)}
    for _, raw in sorted(parts, key=lambda part: _record_in(part[0]) in alone):
        if raw.startswith(FAILED):
            raise ChordError(f"Join error: {_failure(app, raw)[1]}")
    return arranged(header, {_record_in(name): _value(app, name, raw) for name, raw in parts}, record_of)


def _failure(app: Any, raw: bytes) -> tuple[str, str, BaseException | None]:
    """The member that failed, its error as text, and the error itself (absent in parts of earlier releases)."""
    member, why, *kept = codec.decode(raw[len(FAILED) :])
    error = None
    if kept and kept[0]:
        try:
            error = app.backend.exception_to_python(read_result(kept[0]))
        except Exception:  # it was written elsewhere; the words are here
            log.info("the error of %s cannot be read; its chord gets it in words", member, exc_info=True)
    return member, why if error is None else repr(error), error


def _called(parts: Parts) -> set[str]:
    """The error callbacks that failed chords among the parts have called. Parts of earlier releases name none."""
    failed = (codec.decode(raw[len(FAILED) :]) for _, raw in parts if raw.startswith(FAILED))
    return {mark for _, _, *more in failed for mark in (more[1] if len(more) > 1 else ())}


def _record_in(part: str) -> str:
    """Return which task a part belongs to, read from the name of the part."""
    return part.partition(".")[2].partition("+")[0]


def _value(app: Any, part: str, raw: bytes) -> Any:
    keyring = adoption_of(app).client.keyring
    member = _record_in(part)
    if raw.startswith(IN_BACKEND[:-1]):
        return _from_backend(app, codec.decode(raw).get("id") or member.partition(".")[0])
    return read_result(keyring.unwrap(raw, member, "result") if raw else raw)


def _from_backend(app: Any, member: str) -> Any:
    result = app.AsyncResult(member)
    if result.state != states.SUCCESS:
        raise ChordError(
            f"the result of {member} is larger than RELIER_MAX_PAYLOAD_BYTES, and the result backend does not have it; "
            f"raise the limit, or do not ignore the results of this chord's tasks"
        )
    return result.result
