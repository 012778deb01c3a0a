"""Run the join of a chord once all its parts are there: start the body, or report its failure."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import states
from celery.app.task import Context
from celery.canvas import maybe_signature
from celery.exceptions import ChordError
from celery.utils.saferepr import saferepr

from relier import codec
from relier.celery.adoption import adoption_of
from relier.celery.canvas.errbacks import CALLED_ERRBACKS, errback_marks, remove_called_errbacks
from relier.celery.canvas.large_values import is_outage, is_too_large, store_values
from relier.celery.canvas.nesting import NESTED, is_group, nest_values, part_of_outer_chord, saved_result_tree
from relier.celery.canvas.parts import FAILED, JOIN_TASK, part_record_id
from relier.celery.compat import task_stack
from relier.celery.messages import internal_message
from relier.celery.sending.collect import Collector
from relier.celery.sending.spread import spread
from relier.celery.working.report import IN_BACKEND, TracerReport, read_result
from relier.errors import PayloadTooLargeError
from relier.failure import failure_of

log = logging.getLogger("relier.celery")

MAX_RECHECK_S = 60.0  # the longest pause between two checks of a join that was woken too early
Parts = list[tuple[str, bytes]]  # name and value, sorted by name


def run_join(app: Any, collector: Collector, request: dict[str, Any], body: Any, checks: int = 0) -> TracerReport:
    """Run `relier.chord`: start the chord's body, or report that the body cannot run."""
    parts = sorted(collector.parts.items())
    if len(parts) < int(body["chord_size"]) + _count_added([name for name, _ in parts]):
        return _check_again(app, collector, request, body, checks)
    try:
        return _start_body(app, collector, request, body, parts)
    except Exception as error:
        if not is_outage(app, error):
            raise
        log.warning("chord waits for the result backend: chord=%s error=%s", request["id"], error)
        return _check_again(app, collector, request, body, checks)


def _start_body(app: Any, collector: Collector, request: dict[str, Any], body: Any, parts: Parts) -> TracerReport:
    callback = maybe_signature(body, app=app)
    try:
        header = saved_result_tree(app, request["id"].removesuffix(".chord")) if body.get(NESTED) else None
        values = _read_values(app, parts) if header is None else _read_nested_values(app, header, parts)
        _send_body(app, collector, request, callback, values, store=is_too_large(app, parts))
    except Exception as error:  # whatever the error, the body will not run, and its error callbacks must
        if is_outage(app, error):
            raise
        if not isinstance(error, ChordError):
            log.exception("chord body not started: chord=%s", request["id"])
        return _fail_body(app, collector, callback, error, _called_errbacks(parts))
    return TracerReport(states.SUCCESS, follow_ups=spread(adoption_of(app), collector))


def _send_body(
    app: Any, collector: Collector, request: dict[str, Any], callback: Any, values: list[Any], *, store: bool
) -> None:
    options = {"root_id": request.get("root_id"), "parent_id": request.get("parent_id")}
    if not store:
        try:
            callback.apply_async((values,), **options)
        except PayloadTooLargeError:
            collector.follow_ups.clear()
        else:
            return
    if callback.subtask_type in (None, "group"):  # people see the values, not the reference
        options["argsrepr"] = saferepr((values, *callback.args), app.amqp.argsrepr_maxsize)
    callback.apply_async((store_values(app, request["id"].removesuffix(".chord"), values),), **options)


def _fail_body(app: Any, collector: Collector, callback: Any, error: Exception, called: set[str]) -> TracerReport:
    """Report that the chord's body will not run.

    If this chord is a member of an outer chord, the outer one receives a failure for it; plain Celery leaves it
    waiting. `called` identifies the error callbacks that chords in the header have already called.
    """
    calls = called | errback_marks(callback)
    remove_called_errbacks(callback, called)
    with as_current_task(app.tasks[JOIN_TASK], collector.record_id):
        app.backend.chord_error_from_stack(callback=callback, exc=error)
    part = part_of_outer_chord(callback)
    if part is not None:
        part.update({CALLED_ERRBACKS: sorted(calls)})
        app.backend.on_chord_part_return(part, states.FAILURE, error)
    follow_ups = spread(adoption_of(app), collector)
    return TracerReport(states.FAILURE, failure=failure_of(error), follow_ups=follow_ups, part=collector.part)


@contextmanager
def as_current_task(task: Any, task_id: str) -> Iterator[None]:
    """Make every task that is sent inside the block a child of a given task.

    Plain Celery reports a chord's failure from inside one of its members, and stores its error callbacks as children of
    the body.
    """
    task_stack.push(task)
    task.request_stack.push(Context({"id": task_id, "called_directly": False, "children": []}))
    try:
        yield
    finally:
        task.request_stack.pop()
        task_stack.pop()


def _check_again(app: Any, collector: Collector, request: dict[str, Any], body: Any, checks: int) -> TracerReport:
    """Return a report that runs the join again later, because parts are missing.

    The next part wakes the join, but a part that arrives right now, while the join runs, does not. So the join checks
    again soon, and then less and less often.
    """
    args, root, parent = (body, checks + 1), request.get("root_id"), request.get("parent_id")
    message = internal_message(JOIN_TASK, request["id"], args, root, parent, app.conf.task_serializer)
    again = adoption_of(app).submission(message, collector.queue, None)
    delay_ms = int(1000 * min(MAX_RECHECK_S, 0.2 * 4**checks))
    return TracerReport(states.RETRY, again=again, requeue=True, delay_ms=delay_ms)


def _count_added(parts: list[str]) -> int:
    """Return how many members are known to have been added to the chord.

    Both the member that adds others and the added members say so in their parts, and either may arrive first.
    """
    suffixes = [name.partition("+")[2] for name in parts]
    added_by_others = sum(int(suffix.lstrip("x") or 0) for suffix in suffixes)
    return max(added_by_others, sum(suffix.startswith("x") for suffix in suffixes))


def _read_values(app: Any, parts: Parts) -> list[Any]:
    for _, raw in parts:
        if raw.startswith(FAILED):
            member, text, error = _read_failure(app, raw)
            raise ChordError(f"Dependency {member} raised {text}") from error
    return [_read_value(app, name, raw) for name, raw in parts]


def _read_nested_values(app: Any, header: Any, parts: Parts) -> list[Any]:
    """Return the values in the shape of the result tree, as plain Celery does.

    Celery reports failures of groups first, and with this message.
    """
    alone = {part_record_id(result.id) for result in header.results if not is_group(result)}
    for _, raw in sorted(parts, key=lambda part: _record_id_in(part[0]) in alone):
        if raw.startswith(FAILED):
            raise ChordError(f"Join error: {_read_failure(app, raw)[1]}")
    values = {_record_id_in(name): _read_value(app, name, raw) for name, raw in parts}
    return nest_values(header, values, part_record_id)


def _read_failure(app: Any, raw: bytes) -> tuple[str, str, BaseException | None]:
    """Return the member that failed, its error as text, and the error itself (None in parts of earlier releases)."""
    member, text, *stored = codec.decode(raw[len(FAILED) :])
    error = None
    if stored and stored[0]:
        try:
            error = app.backend.exception_to_python(read_result(stored[0]))
        except Exception:  # its class may be unknown in this process
            log.info("error not readable, chord gets it as text: task=%s", member, exc_info=True)
    return member, text if error is None else repr(error), error


def _called_errbacks(parts: Parts) -> set[str]:
    """Return the error callbacks that were already called by failed chords among the parts.

    Parts from earlier releases do not list them.
    """
    failed = (codec.decode(raw[len(FAILED) :]) for _, raw in parts if raw.startswith(FAILED))
    return {mark for _, _, *more in failed for mark in (more[1] if len(more) > 1 else ())}


def _record_id_in(part: str) -> str:
    """Return the id of the record that delivered a part, read from the name of the part."""
    return part.partition(".")[2].partition("+")[0]


def _read_value(app: Any, part: str, raw: bytes) -> Any:
    keyring = adoption_of(app).client.keyring
    member = _record_id_in(part)
    if raw.startswith(IN_BACKEND[:-1]):
        return _from_backend(app, codec.decode(raw).get("id") or member.partition(".")[0])
    return read_result(keyring.unwrap(raw, member, "result") if raw else raw)


def _from_backend(app: Any, member: str) -> Any:
    result = app.AsyncResult(member)
    if result.state != states.SUCCESS:
        raise ChordError(
            f"the chord is missing the result of {member}: it is larger than RELIER_MAX_PAYLOAD_BYTES, and the result "
            f"backend does not have it; raise the limit, or do not ignore the results of this chord's tasks"
        )
    return result.result
