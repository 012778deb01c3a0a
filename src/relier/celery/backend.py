"""Chords join in the ledger. The app's result backend stays what it is, a mirror: only its counting of a chord's parts
is replaced, because a count that is made before the commit is made twice when a worker dies in between.

Each member of the header brings its result as a part of a record of its own, `<group>.chord`, with its commit; the
commit that brings the last part lets that record run, and it starts the body. A member that fails for good brings its
failure instead, and the body is told by its error callbacks, as Celery does it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from celery import states
from celery.canvas import maybe_signature
from celery.exceptions import ChordError

from relier import codec
from relier.celery.collect import Collector, running
from relier.celery.report import read_result
from relier.ledger.records import Join

JOIN_TASK = "relier.chord"
DEADLINE_S = 3600.0  # a join that is not complete by then looks again, and waits on
TOMB_MS = 7 * 86_400_000  # a member that is replayed later than that would open the join again
FAILED = b"!"  # no result begins so: a result is JSON


def backend_class(base: type[Any]) -> type[Any]:
    """The app's own backend class, whose chords join in the ledger."""

    class LedgerBackend(base):
        def apply_chord(self, header_result_args: Any, body: Any, **kwargs: Any) -> Any:
            header = self.app.GroupResult(*header_result_args)
            body["chord_size"] = leaves(header)
            if self.supports_native_join:
                return super().apply_chord(header_result_args, body, **kwargs)
            self.ensure_chords_allowed()  # and no celery.chord_unlock to poll for it
            return None

        def on_chord_part_return(self, request: Any, state: str, result: Any, **kwargs: Any) -> Any:
            collector = running()
            size = (request.chord or {}).get("chord_size")
            if collector is None or not request.group or not size:
                return super().on_chord_part_return(request, state, result, **kwargs)
            join_part(self.app, collector, request, state, result)
            return None

    return LedgerBackend


def leaves(result: Any) -> int:
    """How many parts a header has: groups in it count by what is in them."""
    inner = getattr(result, "results", None)
    return 1 if inner is None else sum(map(leaves, inner))


def join_part(app: Any, collector: Collector, request: Any, state: str, result: Any) -> None:
    """This attempt is a part of a chord: its end brings it there."""
    collector.settling = True
    body = request.chord
    before = len(collector.follow_ups)
    app.tasks[JOIN_TASK].apply_async(
        (body,), task_id=f"{request.group}.chord", queue=collector.queue, countdown=DEADLINE_S, ignore_result=True
    )
    (task,) = collector.follow_ups[before:]
    part = f"{request.group_index or 0:09d}.{collector.record_id}"
    collector.follow_ups[before] = msgspec.structs.replace(
        task, join=Join(int(body["chord_size"]), part), tomb_ttl_ms=TOMB_MS
    )
    if state != states.SUCCESS:
        collector.part = FAILED + codec.encode([request.id, repr(result)])


def run_join(task: Any, body: Any) -> Any:
    """The body of `relier.chord`: start the chord's body, or tell that it cannot be."""
    collector = running()
    callback = maybe_signature(body, app=task.app)
    if collector is None:
        raise ChordError(f"{JOIN_TASK} runs from the ledger only")
    if len(collector.parts) < int(callback["chord_size"]):
        raise task.retry(countdown=DEADLINE_S / 60, max_retries=None)
    collector.settling = True
    parts = sorted(collector.parts.items())
    failed = [codec.decode(raw[len(FAILED) :]) for _, raw in parts if raw.startswith(FAILED)]
    if not failed:
        return callback.delay([_value(task.app, name, raw) for name, raw in parts]).id
    try:
        _blame(*failed[0])
    except ChordError as error:
        task.app.backend.chord_error_from_stack(callback=callback, exc=error)
        raise


def _blame(member: str, why: str) -> None:
    raise ChordError(f"Dependency {member} raised {why}")


def _value(app: Any, part: str, raw: bytes) -> Any:
    from relier.celery.adoption import adoption_of

    keyring = adoption_of(app).client.keyring
    member = part.partition(".")[2]
    return read_result(keyring.unwrap(raw, member, "result") if raw else raw)
