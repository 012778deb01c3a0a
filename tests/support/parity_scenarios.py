"""The features in Celery's user guide, as scenarios. Each runs on a stage and returns a value by which two sides can be
compared.

`ends`: how many tasks end in it, by the workers' events. `value`: the known answer of plain Celery, so that two sides
that fail in the same way do not pass.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery, chain, chord, chunks, group, signature, xmap
from celery.exceptions import TimeoutError as NoResultError
from celery.result import GroupResult, ResultSet

from relier.celery import install
from relier.errors import PayloadTooLargeError
from tests.support import canvas_tasks
from tests.support import parity_app as tasks
from tests.support.parity_app import add, app, mul, notes, xsum

Play = Callable[[Any], Any]
ANY = object()  # a value that is only compared, not known in advance


@dataclass(frozen=True)
class Scenario:
    play: Play
    ends: int
    value: Any
    alone: bool = False


SCENARIOS: dict[str, Scenario] = {}


def scenario(ends: int = 1, value: Any = ANY) -> Callable[[Play], Play]:
    def keep(play: Play) -> Play:
        SCENARIOS[play.__name__] = Scenario(play, ends, value)
        return play

    return keep


def of_the_adopted_app(value: Any) -> Callable[[Play], Play]:
    """Register a scenario that runs on the adopted side only."""

    def keep(play: Play) -> Play:
        SCENARIOS[play.__name__] = Scenario(play, 0, value, alone=True)
        return play

    return keep


def fresh() -> str:
    """Return a key that nothing else uses."""
    return f"k{uuid.uuid4().hex}"


def with_long_id(sig: Any) -> Any:
    """Return an id that is too long for the name of a chord's part."""
    return sig.set(task_id="order-4711-" * 4 + fresh())


# --- calling ----------------------------------------------------------------------------------------------------------


@scenario(value=["SUCCESS", 4])
def delay(stage: Any) -> Any:
    return stage.told(add.delay(2, 2))


@scenario(value=["SUCCESS", 4])
def apply_async(stage: Any) -> Any:
    return stage.told(add.apply_async((2,), {"y": 2}))


@scenario(value=["SUCCESS", [[1], {"a": None}]])
def send_by_name(stage: Any) -> Any:
    return stage.told(app.send_task("tests.support.parity_app.echo", (1,), {"a": None}))


@scenario(value=["SUCCESS", ["x", 1]])
def a_name_of_its_own(stage: Any) -> Any:
    return stage.told(tasks.by_hand.delay("x", 1))


@scenario(ends=0, value="TypeError")
def wrong_arguments(stage: Any) -> Any:
    """Typing refuses the call where it is made."""
    try:
        add.delay(1)
    except TypeError as error:
        return type(error).__name__
    return "accepted"


def request_seen(stage: Any, **options: Any) -> dict[str, Any]:
    begun = time.time()
    result = tasks.tell_request.apply_async(**options)
    state, seen = stage.told(result)
    assert state == "SUCCESS", seen
    return seen | {"waited": float(stage.noted(f"at:{result.id}")[0]) - begun >= 1}


@scenario()
def the_request(stage: Any) -> Any:
    return request_seen(stage)


@scenario()
def countdown(stage: Any) -> Any:
    return request_seen(stage, countdown=1)


@scenario()
def eta(stage: Any) -> Any:
    return request_seen(stage, eta=datetime.now(UTC) + timedelta(seconds=1.1))


@scenario()
def eta_in_the_past(stage: Any) -> Any:
    return request_seen(stage, eta=datetime.now(UTC) - timedelta(minutes=1))


@scenario()
def expires_later(stage: Any) -> Any:
    return request_seen(stage, expires=60)


@scenario(value=["REVOKED", "TaskRevokedError('expired')"])
def expired(stage: Any) -> Any:
    return stage.told(add.apply_async((1, 1), expires=datetime.now(UTC) - timedelta(seconds=5)))


@scenario(value=["REVOKED", "TaskRevokedError('expired')"])
def expires_before_its_eta(stage: Any) -> Any:
    return stage.told(add.apply_async((1, 1), expires=0.3, countdown=0.6))


@scenario()
def priority(stage: Any) -> Any:
    return request_seen(stage, priority=6)


@scenario()
def queue_by_name(stage: Any) -> Any:
    return request_seen(stage, queue="side")


@scenario()
def exchange_and_key(stage: Any) -> Any:
    return request_seen(stage, exchange="side", routing_key="side")


@scenario(value=["SUCCESS", "routed"])
def task_routes(stage: Any) -> Any:
    return stage.told(tasks.routed.delay())


@scenario(value=["SUCCESS", "side"])
def task_routes_by_pattern(stage: Any) -> Any:
    return stage.told(tasks.far_away.delay())


@scenario()
def headers(stage: Any) -> Any:
    return request_seen(stage, headers={"tenant": "blue"})


@scenario()
def shadow(stage: Any) -> Any:
    return request_seen(stage, shadow="a name for people")


@scenario()
def limits(stage: Any) -> Any:
    return request_seen(stage, time_limit=30, soft_time_limit=20)


@scenario(value=["SUCCESS", "tuple"])
def pickle_of_the_task(stage: Any) -> Any:
    return stage.told(tasks.pickled.delay((3, 1, 2)))


@scenario(value=["SUCCESS", 4])
def pickle_of_the_call(stage: Any) -> Any:
    return stage.told(add.apply_async((2, 2), serializer="pickle"))


@scenario(ends=0, value="EncodeError")
def unserializable(stage: Any) -> Any:
    try:
        tasks.echo.delay(object())
    except Exception as error:  # noqa: BLE001 - which one is the answer
        return type(error).__name__
    return "accepted"


@scenario(value=["SUCCESS", 3000])
def compressed(stage: Any) -> Any:
    state, (args, _) = stage.told(tasks.echo.apply_async(("x" * 3000,), compression="gzip"))
    return [state, len(args[0])]


@scenario(value=["SUCCESS", [[b"ab".hex()], {}]])
def pickle_and_compression(stage: Any) -> Any:
    return stage.told(tasks.echo.apply_async((b"ab".hex(),), serializer="pickle", compression="zlib"))


@scenario(ends=2, value=[["SUCCESS", 4], ["(4,)"]])
def link(stage: Any) -> Any:
    key = fresh()
    result = add.apply_async((2, 2), link=tasks.note_down.s(key=key))
    return [stage.told(result), stage.noted(key, 1)]


@scenario(ends=4, value=[["SUCCESS", 4], ["()", "(4, 16)", "(4,)"]])
def several_links(stage: Any) -> Any:
    key = fresh()
    note = tasks.note_down
    links = [note.s(key=key), note.s(16, key=key), note.si(key=key)]
    result = add.apply_async((2, 2), link=links)
    return [stage.told(result), sorted(stage.noted(key, 3))]


@scenario(ends=3, value=["(1, 5)", "(1,)"])
def a_link_with_a_link(stage: Any) -> Any:
    key = fresh()
    second = tasks.note_down.s(5, key=key)
    first = tasks.note_down.s(key=key)
    first.link(second)
    add.apply_async((1, 0), link=first)
    return sorted(stage.noted(key, 2))


@scenario(ends=4, value=["(3, 1)", "(3, 2)", "(3, 3)"])
def a_link_that_is_a_group(stage: Any) -> Any:
    key = fresh()
    add.apply_async((1, 2), link=group(tasks.note_down.s(n, key=key) for n in (1, 2, 3)))
    return sorted(stage.noted(key, 3))


@scenario(ends=1, value=[["FAILURE", "ValueError('broken')"], ["ValueError: broken"]])
def link_error(stage: Any) -> Any:
    """A new-style callback is called in the worker itself, with the request."""
    result = tasks.fail.apply_async(link_error=tasks.on_error_new.s())
    return [stage.told(result), stage.noted(f"errback:{result.id}", 1)]


@scenario(ends=2, value=[["FAILURE", "ValueError('broken')"], ["old style"]])
def link_error_old_style(stage: Any) -> Any:
    result = tasks.fail.apply_async(link_error=tasks.on_error_old.s())
    return [stage.told(result), stage.noted(f"errback:{result.id}", 1)]


@scenario(ends=2, value=["ValueError: broken", "old style"])
def two_error_links(stage: Any) -> Any:
    result = tasks.fail.apply_async(link_error=[tasks.on_error_old.s(), tasks.on_error_new.s()])
    return sorted(stage.noted(f"errback:{result.id}", 2))


@scenario(value=["FAILURE", "OddError(3, 'odd')"])
def an_exception_of_the_apps_own(stage: Any) -> Any:
    return stage.told(tasks.fail_oddly.delay())


@scenario(value="FAILURE")
def a_result_that_json_cannot_say(stage: Any) -> Any:
    return stage.told(tasks.not_json.delay())[0]


@scenario(value=[["ran"], "PENDING"])
def ignore_result(stage: Any) -> Any:
    key = fresh()
    result = tasks.forget.delay(key)
    ran = stage.noted(key, 1)
    stage.wait(lambda: "task-succeeded" in stage.event_types(result.id))
    return [ran, result.state]


@scenario(ends=2, value=[["SUCCESS", 7], "PENDING"])
def ignore_result_by_call(stage: Any) -> Any:
    kept = tasks.forget.apply_async((fresh(),), ignore_result=False)
    not_kept = add.apply_async((1, 1), ignore_result=True)
    stage.wait(lambda: "task-succeeded" in stage.event_types(not_kept.id))
    return [stage.told(kept), not_kept.state]


@scenario(value=["SUCCESS", "cleaned up"])
def soft_time_limit(stage: Any) -> Any:
    return stage.told(tasks.too_slow_soft.delay())


@scenario(value=["FAILURE", "SoftTimeLimitExceeded()"])
def soft_time_limit_by_call(stage: Any) -> Any:
    return stage.told(tasks.slow.apply_async((20,), soft_time_limit=0.2))


@scenario(value=["FAILURE", "TimeLimitExceeded(0.5)"])
def time_limit(stage: Any) -> Any:
    return stage.told(tasks.slow.apply_async((20,), time_limit=0.5))


@scenario(ends=2, value=[["FAILURE", "TimeLimitExceeded(0.5)"], True])
def time_limit_with_error_link(stage: Any) -> Any:
    result = tasks.slow.apply_async((20,), time_limit=0.5, link_error=tasks.on_error_old.s())
    return [stage.told(result), bool(stage.noted(f"errback:{result.id}", 1))]


@scenario(ends=0, value=["SUCCESS", 4, ["SUCCESS", "FAILURE", 3, [2, 3]]])
def always_eager(stage: Any) -> Any:
    app.conf.task_always_eager = True
    try:
        chained = chain(add.s(1, 1), add.s(1))()
        grouped = group(add.s(1, 1), add.s(1, 2))()
        done, failed = add.delay(2, 2), tasks.fail.delay()
        return [done.state, done.get(), [done.state, failed.state, chained.get(), grouped.get()]]
    finally:
        app.conf.task_always_eager = False


@scenario(ends=0, value=["SUCCESS", 2])
def apply_here(stage: Any) -> Any:
    """`apply()` runs the task where it is called."""
    done = tasks.retry_until.apply((2,))
    return [done.state, done.get()]


@scenario(ends=2, value=[1, 2])
def a_unique_result(stage: Any) -> Any:
    """`ResultSet` gathers the results of any tasks."""
    return ResultSet([add.delay(1, 0), add.delay(1, 1)], app=app).get(timeout=20)


@scenario(ends=1, value=["NoResultError", "held"])
def get_with_a_timeout(stage: Any) -> Any:
    gate = fresh()
    result = tasks.hold.delay(gate)
    stage.noted(f"holding:{gate}", 1)
    try:
        result.get(timeout=0.05)
    except NoResultError:
        early = "NoResultError"
    stage.open_gate(gate)
    return [early, result.get(timeout=20)]


# --- canvas -----------------------------------------------------------------------------------------------------------


@scenario(value=["SUCCESS", 4])
def signatures(stage: Any) -> Any:
    made = signature("tests.support.parity_app.add", args=(2, 2), app=app)
    return stage.told(made.delay())


@scenario(ends=3, value=[["SUCCESS", 6], ["SUCCESS", [[1], {"a": 2, "b": 3}]], ["SUCCESS", 12]])
def partials(stage: Any) -> Any:
    keyed = tasks.echo.s(1, a=1, b=3)
    fixed = add.signature((10, 2), immutable=True)
    return [stage.told(add.s(2).delay(4)), stage.told(keyed.delay(a=2)), stage.told(fixed.apply_async((99,)))]


@scenario(value=["SUCCESS", 5])
def signature_with_options(stage: Any) -> Any:
    made = add.s(2).set(queue="side", countdown=0.2).clone(args=(3,))
    return stage.told(made.apply_async())


@scenario(ends=3, value=[["SUCCESS", 64], 16, 8])
def chained(stage: Any) -> Any:
    result = chain(add.s(4, 4), mul.s(2), mul.s(4))()
    return [stage.told(result), result.parent.get(timeout=20), result.parent.parent.get(timeout=20)]


@scenario(ends=3, value=["SUCCESS", 16])
def chained_by_pipe(stage: Any) -> Any:
    return stage.told((add.s(2, 2) | mul.s(2) | mul.s(2)).apply_async())


@scenario(ends=3, value=["SUCCESS", 100])
def chained_immutable(stage: Any) -> Any:
    return stage.told(chain(add.si(1, 1), add.si(2, 2), mul.si(10, 10)).delay())


@scenario(ends=2, value=["SUCCESS", 30])
def chained_with_countdown(stage: Any) -> Any:
    return stage.told(chain(add.s(1, 2), mul.s(10).set(countdown=0.3)).apply_async())


@scenario(ends=1, value=[["FAILURE", "ValueError('broken')"], "FAILURE"])
def a_chain_that_breaks(stage: Any) -> Any:
    result = chain(tasks.fail.si(), add.s(1))()
    return [stage.told(result.parent), stage.told(result)[0]]


@scenario(ends=2, value=["old style"])
def a_chain_with_error_link(stage: Any) -> Any:
    result = chain(tasks.fail.si(), add.s(1)).apply_async(link_error=tasks.on_error_old.s())
    return stage.noted(f"errback:{result.parent.id}", 1)


@scenario(ends=3, value=[["SUCCESS", 6], ["(6,)"]])
def a_chain_with_a_link(stage: Any) -> Any:
    key = fresh()
    result = chain(add.s(1, 2), mul.s(2)).apply_async(link=tasks.note_down.s(key=key))
    return [stage.told(result), stage.noted(key, 1)]


@scenario(ends=5, value=[[0, 2, 4, 6, 8], True, 5])
def grouped(stage: Any) -> Any:
    result = group(add.s(i, i) for i in range(5))()
    return [result.get(timeout=20), result.successful(), result.completed_count()]


@scenario(ends=3, value=[[11, 12, 13]])
def a_group_with_arguments(stage: Any) -> Any:
    return [group(add.s(i) for i in (1, 2, 3)).apply_async((10,)).get(timeout=20)]


@scenario(ends=0, value=[])
def an_empty_group(stage: Any) -> Any:
    return group()().get(timeout=20)


@scenario(ends=3, value=["FAILURE", "SUCCESS", "SUCCESS"])
def a_group_with_a_failure(stage: Any) -> Any:
    result = group(add.s(1, 1), tasks.fail.s(), add.s(2, 2))()
    result.get(timeout=20, propagate=False)
    return sorted(each.state for each in result)


@scenario(ends=2, value=[[3, 7], [3, 7]])
def save_and_restore(stage: Any) -> Any:
    result = group(add.s(1, 2), add.s(3, 4))()
    result.save()
    return [GroupResult.restore(result.id, app=app).get(timeout=20), result.get(timeout=20)]


@scenario(ends=5, value=["SUCCESS", 12])
def chords(stage: Any) -> Any:
    return stage.told(chord(add.s(i, i) for i in range(4))(xsum.s()))


@scenario(ends=2, value=["SUCCESS", [5]])
def a_chord_of_one(stage: Any) -> Any:
    return stage.told(chord([add.s(2, 3)])(tasks.gather.s()))


@scenario(ends=1, value=["SUCCESS", []])
def a_chord_of_none(stage: Any) -> Any:
    return stage.told(chord([])(tasks.gather.s()))


@scenario(ends=21, value=["SUCCESS", list(range(20))])
def a_chord_keeps_its_order(stage: Any) -> Any:
    return stage.told(chord([add.s(i, 0) for i in range(20)])(tasks.gather.s()))


@scenario(ends=4, value=["SUCCESS", [2, 4, 6]])
def a_chord_of_long_ids(stage: Any) -> Any:
    return stage.told(chord([with_long_id(add.s(i, i)) for i in (1, 2)] + [add.s(3, 3)])(tasks.gather.s()))


@scenario(ends=2)
def a_chord_of_long_ids_that_fails(stage: Any) -> Any:
    return stage.told(chord([with_long_id(tasks.fail.s()), with_long_id(add.s(1, 1))])(xsum.s()))


@scenario(ends=4, value=["SUCCESS", 3])
def add_to_a_chord_of_long_ids(stage: Any) -> Any:
    return stage.told(chord([with_long_id(tasks.join_chord.s(i)) for i in range(2)])(tasks.count.s()))


@scenario(ends=3, value=["SUCCESS", 42])
def a_chord_with_immutable_body(stage: Any) -> Any:
    return stage.told(chord([add.s(1, 1), add.s(2, 2)])(add.si(40, 2)))


@scenario(ends=2)
def a_chord_that_fails(stage: Any) -> Any:
    return stage.told(chord([add.s(1, 1), tasks.fail.s()])(xsum.s()))


@scenario(ends=2)
def a_chord_that_fails_with_error_link(stage: Any) -> Any:
    body = xsum.s().on_error(tasks.on_error_new.s())
    result = chord([add.s(1, 1), tasks.fail.s()])(body)
    return [stage.told(result), len(stage.noted(f"errback:{result.id}", 1))]


@scenario(ends=2, value=["FAILURE", ["told"]])
def the_children_of_a_chord_that_fails(stage: Any) -> Any:
    result = chord([add.s(1, 1), tasks.fail.s()])(xsum.s().on_error(tasks.on_error_old.s()))
    state, _ = stage.told(result)
    return [state, [child.get(timeout=20) for each in result.children for child in each.results]]


@scenario(ends=2)
def a_chord_whose_member_is_revoked(stage: Any) -> Any:
    result = chord([add.s(1, 1).set(countdown=0.6), add.s(2, 2)])(xsum.s())
    result.parent.results[0].revoke()
    return [stage.told(result)[0], stage.told(result.parent.results[0])]


@scenario(ends=2, value="FAILURE")
def a_chord_whose_member_expires(stage: Any) -> Any:
    return stage.told(chord([add.s(1, 1).set(countdown=0.4, expires=0.2), add.s(2, 2)])(xsum.s()))[0]


@scenario(ends=2, value="FAILURE")
def a_chord_whose_member_is_too_slow(stage: Any) -> Any:
    return stage.told(chord([tasks.slow.s(20).set(time_limit=0.4), add.s(2, 2)])(xsum.s()))[0]


@scenario(ends=2)
def a_chord_whose_member_is_terminated(stage: Any) -> Any:
    gate = fresh()
    result = chord([tasks.hold.s(gate), add.s(2, 2)])(xsum.s())
    stage.noted(f"holding:{gate}", 1)
    result.parent.results[0].revoke(terminate=True)
    return [stage.told(result)[0], stage.told(result.parent.results[0])]


@scenario(ends=2)
def a_chord_whose_member_rejects(stage: Any) -> Any:
    return stage.told(chord([tasks.reject_early.s(), add.s(2, 2)])(xsum.s()))


@scenario(ends=4, value=["SUCCESS", [2, 9, 4]])
def a_chord_of_several_tasks(stage: Any) -> Any:
    return stage.told(chord([add.s(1, 1), mul.s(3, 3), add.s(0, 4)])(tasks.gather.s()))


@scenario(ends=3, value=["SUCCESS", 3])
def a_chord_whose_member_retries(stage: Any) -> Any:
    return stage.told(chord([tasks.retry_until.s(2), add.s(0, 1)])(xsum.s()))


@scenario(ends=4, value=["SUCCESS", 24])
def a_chord_then_a_task(stage: Any) -> Any:
    return stage.told((chord([add.s(1, 1), add.s(2, 2)], xsum.s()) | mul.s(4)).delay())


@scenario(ends=3, value=["SUCCESS", 6])
def a_group_then_a_task_is_a_chord(stage: Any) -> Any:
    return stage.told((group(add.s(1, 1), add.s(2, 2)) | xsum.s()).delay())


@scenario(ends=4, value=[6, 11])
def a_task_then_a_group(stage: Any) -> Any:
    result = (add.s(0, 1) | group(add.s(5), add.s(10)) | tasks.gather.s()).delay()
    return result.get(timeout=20)


@scenario(ends=3, value=[6, 11])
def a_chain_that_ends_in_a_group(stage: Any) -> Any:
    return (add.s(0, 1) | group(add.s(5), add.s(10))).delay().get(timeout=20)


@scenario(ends=9, value=["SUCCESS", 36])
def chord_after_chord(stage: Any) -> Any:
    canvas = chain(
        group(add.s(1, 1), add.s(2, 2)),
        xsum.s(),
        group(mul.s(1), mul.s(2)),
        xsum.s(),
        group(add.s(0), add.s(0)),
        xsum.s(),
    )
    return stage.told(canvas.delay())


@scenario(ends=5, value=["SUCCESS", 13])
def chord_in_chord(stage: Any) -> Any:
    inner = chord([add.s(1, 1), add.s(2, 2)], xsum.s())
    return stage.told(chord([inner, add.s(3, 4)])(xsum.s()))


@of_the_adopted_app(value=[["FAILURE", ["('failed',)"]]] * 2)
def chords_in_chords_that_fail_with_error_link(stage: Any) -> Any:
    """Celery links the error callback of a chord to the chords in its header, too. It is called once for a failure."""

    def fail_inside(depth: int) -> Any:
        key, canvas = fresh(), chord([add.si(1, 1), tasks.fail.si()], tasks.gather.s())
        for _ in range(depth):
            canvas = chord([add.si(2, 2), canvas], tasks.gather.s())
        canvas.link_error(tasks.note_down.si("failed", key=key))
        state, _ = stage.told(canvas.delay())
        return [state, stage.noted(key, 1)]

    return [fail_inside(depth) for depth in (1, 2)]


@scenario(ends=5, value=["SUCCESS", [3, 12]])
def a_chord_of_chains(stage: Any) -> Any:
    header = [chain(add.s(1, 1), add.s(1)), chain(add.s(2, 2), mul.s(3))]
    return stage.told(chord(header)(tasks.gather.s()))


@scenario(ends=4, value=["SUCCESS", [2, 2, 2]])
def a_chord_of_groups(stage: Any) -> Any:
    header = group(group(add.s(1, 1), add.s(2, 0)), add.s(0, 2))
    return stage.told(chord(header)(tasks.gather.s()))


@scenario(ends=5, value=["SUCCESS", [4, 5]])
def a_chord_whose_body_is_a_chain_into_a_group(stage: Any) -> Any:
    body = xsum.s() | group(add.s(1), add.s(2))
    return ["SUCCESS", chord([add.s(1, 1), add.s(0, 1)])(body).get(timeout=20)]


@scenario(ends=3, value=["FAILURE", "FAILURE"])
def a_chord_of_chains_that_breaks(stage: Any) -> Any:
    header = [chain(tasks.fail.si(), add.s(1)), chain(add.s(2, 2), mul.s(3))]
    result = chord(header)(tasks.gather.s())
    state, _ = stage.told(result)
    return [state, result.parent.results[0].state]


@scenario(ends=2, value=[[3, 7], [11]])
def chunked(stage: Any) -> Any:
    return add.chunks([(1, 2), (3, 4), (5, 6)], 2)().get(timeout=20)


@scenario(ends=3, value=["SUCCESS", [[[3, 7], [11]]]])
def chunks_then_a_task(stage: Any) -> Any:
    work = chunks(add.s(), [(1, 2), (3, 4), (5, 6)], 2, app=app).group() | tasks.gather.s()
    state, value = stage.told(work.delay())
    return [state, [value]]


@scenario(ends=2, value=[["SUCCESS", [6, 15]], ["SUCCESS", [2, 4]]])
def mapped(stage: Any) -> Any:
    both = [xsum.map([(1, 2, 3), (4, 5, 6)]), add.starmap([(1, 1), (2, 2)])]
    return [stage.told(each.apply_async()) for each in both]


@scenario(ends=1, value=["SUCCESS", [3]])
def mapped_later(stage: Any) -> Any:
    return stage.told(xmap(xsum.s(), [(1, 2)], app=app).apply_async(countdown=0.2))


@scenario(ends=4, value=[0, 2, 4])
def a_group_from_a_body(stage: Any) -> Any:
    result = tasks.fan_out.delay(3)
    result.get(timeout=20)
    (started,) = result.children
    return started.get(timeout=20)


@scenario(ends=3, value=["SUCCESS", 30])
def a_chain_from_a_body(stage: Any) -> Any:
    state, last = stage.told(tasks.start_chain.delay())
    return [state, app.AsyncResult(last).get(timeout=20)]


@scenario(ends=1, value=["SUCCESS", 105])
def replaced_by_a_task(stage: Any) -> Any:
    return stage.told(tasks.become_task.delay(5))


@scenario(ends=2, value=["SUCCESS", 12])
def replaced_by_a_chain(stage: Any) -> Any:
    return stage.told(tasks.become_chain.delay(5))


@scenario(ends=4, value=["SUCCESS", [5, 6, 7]])
def replaced_by_a_group(stage: Any) -> Any:
    return stage.told(tasks.become_group.delay(5))


@scenario(ends=4, value=["SUCCESS", 18])
def replaced_by_a_chord(stage: Any) -> Any:
    return stage.told(tasks.become_chord.delay(5))


@scenario(ends=1, value=["SUCCESS", 1105])
def replaced_twice(stage: Any) -> Any:
    return stage.told(tasks.become_twice.delay(5))


@scenario(ends=3, value=["SUCCESS", 36])
def replaced_in_a_chain(stage: Any) -> Any:
    return stage.told(chain(tasks.become_chain.s(5), mul.s(3))())


@scenario(ends=3, value=["SUCCESS", 107])
def replaced_in_a_chord(stage: Any) -> Any:
    return stage.told(chord([tasks.become_task.s(5), add.s(1, 1)])(xsum.s()))


@scenario(ends=6, value=["SUCCESS", [[5, 6, 7], 2]])
def replaced_by_a_group_in_a_chord(stage: Any) -> Any:
    return stage.told(chord([tasks.become_group.s(5), add.s(1, 1)])(tasks.gather.s()))


@scenario(ends=2, value=[["SUCCESS", 105], ["(105,)"]])
def replaced_with_a_link(stage: Any) -> Any:
    key = fresh()
    result = tasks.become_task.apply_async((5,), link=tasks.note_down.s(key=key))
    return [stage.told(result), stage.noted(key, 1)]


@scenario(ends=2, value=[["FAILURE", "ValueError('replaced')"], ["old style"]])
def replaced_by_what_fails(stage: Any) -> Any:
    result = tasks.become_failing.apply_async(link_error=tasks.on_error_old.s())
    return [stage.told(result), stage.noted(f"errback:{result.id}", 1)]


@scenario(ends=4, value=["SUCCESS", 3])
def add_to_chord(stage: Any) -> Any:
    return stage.told(chord([tasks.join_chord.s(0), tasks.join_chord.s(1)])(tasks.count.s()))


def added(stage: Any, kind: str, *, first: bool) -> Any:
    """Run a chord whose member adds another one. Added members run in random order, so the body sorts their results."""
    header = [canvas_tasks.mark.s(label="z"), canvas_tasks.adds.s(label="q", kind=kind, first=first)]
    return stage.told(chord(header)(tasks.in_order.s().set(argsrepr="(parts)")))


@scenario(ends=5, value=["SUCCESS", ["['q']", "['qb', ['qa']]", "['z']"]])
def add_a_chain_to_a_chord(stage: Any) -> Any:
    return added(stage, "chain", first=True)


@scenario(ends=5, value=["SUCCESS", ["['q']", "['qb', ['qa']]", "['z']"]])
def add_a_chain_to_a_chord_and_wait_for_it(stage: Any) -> Any:
    return added(stage, "chain", first=False)


@scenario(ends=6, value=["SUCCESS", ["['q']", "['qc', [['qa'], ['qb']]]", "['z']"]])
def add_a_chord_to_a_chord(stage: Any) -> Any:
    return added(stage, "chord", first=True)


@scenario(ends=6, value=["SUCCESS", ["['q']", "['qc', [['qa'], ['qb']]]", "['z']"]])
def add_a_chord_to_a_chord_and_wait_for_it(stage: Any) -> Any:
    return added(stage, "chord", first=False)


@scenario(ends=6, value=["SUCCESS", ["['q']", "['qac', [['qaa'], ['qab']]]", "['z']"]])
def add_one_that_is_replaced_to_a_chord(stage: Any) -> Any:
    return added(stage, "replaced", first=False)


@scenario(ends=1, value=["SUCCESS", [["release"], {"release": "7"}]])
def stamped(stage: Any) -> Any:
    made = tasks.see_stamp.si()
    made.stamp(release="7")
    return stage.told(made.delay())


@scenario(ends=2, value=["SUCCESS", [["release"], {"release": "7"}]])
def a_stamp_goes_down_a_chain(stage: Any) -> Any:
    made = chain(add.si(1, 1), tasks.see_stamp.si())
    made.stamp(release="7")
    return stage.told(made.delay())


@scenario(ends=3, value=[True, [3, 4], 1, 4, 2])
def results_know_their_family(stage: Any) -> Any:
    result = (add.s(0, 1) | group(add.s(2), add.s(3))).delay()
    values = result.get(timeout=20)
    first = result.parent
    stage.wait(lambda: first.children)
    graph = first.graph
    return [result.ready(), values, first.get(timeout=20), len(graph), graph.edges() and len(list(graph.edges()))]


@scenario(ends=4)
def collected(stage: Any) -> Any:
    result = tasks.fan_out.delay(3)
    result.get(timeout=20)
    return sorted(str(type(value).__name__) for _, value in result.collect(timeout=20))


@scenario(ends=3, value=[8, 16, 64, True])
def a_chain_remembers_its_values(stage: Any) -> Any:
    result = chain(add.s(4, 4), mul.s(2), mul.s(4))()
    last = result.get(timeout=20)
    values = [each.get(timeout=20) for each in (result.parent.parent, result.parent)]
    return [*values, last, app.AsyncResult(result.id).successful()]


# --- retry ------------------------------------------------------------------------------------------------------------


@scenario(value=["SUCCESS", 2])
def retried(stage: Any) -> Any:
    return stage.told(tasks.retry_until.delay(2))


@scenario(value=["SUCCESS", True])
def retried_after_a_countdown(stage: Any) -> Any:
    return stage.told(tasks.retry_when.delay())


@scenario(value=["SUCCESS", "321"])
def retried_with_other_arguments(stage: Any) -> Any:
    return stage.told(tasks.retry_smaller.delay(3))


@scenario(value=[["0", "1", "2"], "FAILURE", True])
def retried_too_often(stage: Any) -> Any:
    result = tasks.retry_for_ever.delay()
    state, why = stage.told(result)
    return [stage.noted(f"tries:{result.id}"), state, "MaxRetriesExceededError" in why]


@scenario(value=["FAILURE", "KeyError('cause')"])
def retried_too_often_with_a_cause(stage: Any) -> Any:
    return stage.told(tasks.retry_cause.delay())


@scenario(ends=2, value=["old style"])
def retried_too_often_with_error_link(stage: Any) -> Any:
    result = tasks.retry_for_ever.apply_async(link_error=tasks.on_error_old.s())
    return stage.noted(f"errback:{result.id}", 1)


@scenario(value=[["SUCCESS", 1], ["0", "1"]])
def autoretry(stage: Any) -> Any:
    result = tasks.auto_retry.delay(1)
    return [stage.told(result), stage.noted(f"tries:{result.id}")]


@scenario(value=[["FAILURE", "ValueError('again')"], ["0", "1"]])
def autoretry_gives_up(stage: Any) -> Any:
    result = tasks.auto_retry.delay(9)
    return [stage.told(result), stage.noted(f"tries:{result.id}")]


@scenario(value=[["FAILURE", "KeyError('final')"], ["0"]])
def autoretry_but_not_for(stage: Any) -> Any:
    result = tasks.auto_retry_not.delay()
    return [stage.told(result), stage.noted(f"tries:{result.id}")]


@scenario(value=["SUCCESS", [1, "side"]])
def retried_in_another_queue(stage: Any) -> Any:
    return stage.told(tasks.retry_elsewhere.delay())


@scenario(value=["SUCCESS", [[30, 20], 5, True]])
def retried_with_other_options(stage: Any) -> Any:
    return stage.told(tasks.retry_with_limits.delay())


@scenario(ends=1, value=["run 0", "run 1"])
def retried_without_throwing(stage: Any) -> Any:
    key = fresh()
    result = tasks.retry_quietly.delay(key)
    noted = stage.noted(key, 2)
    stage.wait(lambda: stage.event_types(result.id).count("task-succeeded") == 2)
    return noted


@scenario(ends=2, value=["SUCCESS", 20])
def a_retry_in_a_chain(stage: Any) -> Any:
    return stage.told(chain(tasks.retry_until.s(2), mul.s(10))())


@scenario(ends=2, value=[["SUCCESS", 1], ["(1,)"]])
def a_retry_keeps_its_link(stage: Any) -> Any:
    key = fresh()
    result = tasks.retry_until.apply_async((1,), link=tasks.note_down.s(key=key))
    return [stage.told(result), stage.noted(key, 1)]


@scenario(ends=1, value=["RETRY", "SUCCESS"])
def a_retry_is_a_state(stage: Any) -> Any:
    result = tasks.retry_until.delay(1, countdown=1)
    seen = stage.wait(lambda: result.state if result.state == "RETRY" else None)
    result.get(timeout=20)
    return [seen, result.state]


# --- the life of a task -----------------------------------------------------------------------------------------------


@scenario(ends=0, value=[["ran"], "PENDING"])
def ignored(stage: Any) -> Any:
    key = fresh()
    result = tasks.ignore_me.delay(key)
    return [stage.noted(key, 1), result.state]


@scenario(ends=0, value=["SKIPPED", {"why": "not today"}])
def ignored_with_a_state(stage: Any) -> Any:
    result = tasks.ignore_with_state.delay()
    stage.wait(lambda: result.state == "SKIPPED")
    return [result.state, result.info]


@scenario(value=[["ran"], "FAILURE"])
def rejected(stage: Any) -> Any:
    key = fresh()
    result = tasks.reject_for_good.delay(key)
    return [stage.noted(key, 1), stage.told(result)[0]]


@scenario(ends=2, value=["FAILURE", ["old style"]])
def rejected_with_error_link(stage: Any) -> Any:
    result = tasks.reject_early.apply_async(link_error=tasks.on_error_old.s())
    return [stage.told(result)[0], stage.noted(f"errback:{result.id}", 1)]


@scenario(value=[["SUCCESS", "second"], ["False", "True"]])
def rejected_and_requeued(stage: Any) -> Any:
    key = fresh()
    return [stage.told(tasks.reject_once.delay(key)), stage.noted(key)]


@scenario(ends=0, value=["ran"])
def rejected_and_requeued_after_its_acknowledgement(stage: Any) -> Any:
    """Plain Celery acknowledged the message when the task began, and has nothing left to requeue."""
    key = fresh()
    result = tasks.reject_once_early.delay(key)
    if os.environ.get("PARITY_ADOPT"):
        assert result.get(timeout=20) == "second"
    else:
        stage.wait(lambda: "task_postrun REJECTED" in notes().lrange(f"signals:{result.id}", 0, -1))
    return stage.noted(key, 1)


@scenario(ends=0)
def properties(stage: Any) -> Any:
    return tasks.tell_properties.delay().get(timeout=20)


@scenario(ends=0, value="no state")
def a_failure_inside_celery(stage: Any) -> Any:
    """The backend stores arguments (`result_extended`), but cannot store these."""
    result = tasks.pickled.delay({1, 2})
    stage.wait(lambda: "task_internal_error" in notes().lrange(f"signals:{result.id}", 0, -1))
    if os.environ.get("PARITY_ADOPT"):
        stage.wait(lambda: "task-failed" in stage.event_types(result.id))
    return "no state" if result.state == "PENDING" else result.state


@scenario(value=["PROGRESS", {"done": 50}, "SUCCESS"])
def states_of_its_own(stage: Any) -> Any:
    gate = fresh()
    result = tasks.progress.delay(gate)
    stage.noted(f"holding:{gate}", 1)
    seen = [result.state, result.info]
    stage.open_gate(gate)
    return [*seen, stage.told(result)[0]]


@scenario(value=["STARTED", ["hostname", "pid"], "SUCCESS"])
def started_is_a_state(stage: Any) -> Any:
    gate = fresh()
    result = tasks.tracked.delay(gate)
    stage.noted(f"holding:{gate}", 1)
    seen = [result.state, sorted(result.info)]
    stage.open_gate(gate)
    return [*seen, stage.told(result)[0]]


@scenario()
def what_the_backend_keeps(stage: Any) -> Any:
    """With `result_extended`."""
    result = add.apply_async((2, 2), queue="side")
    result.get(timeout=20)
    meta = result._get_task_meta()
    kept = ("name", "args", "kwargs", "retries", "queue", "status", "result", "traceback", "children", "worker")
    return {name: meta.get(name) for name in kept} | {"worker": bool(meta.get("worker"))}


def handlers(stage: Any, result: Any) -> Any:
    state, _ = stage.told(result)
    stage.wait(lambda: any("after_return" in each and "RETRY" not in each for each in noted(result)))
    return [state, noted(result)]


def noted(result: Any) -> list[str]:
    return list(notes().lrange(f"handlers:{result.id}", 0, -1))


@scenario(value=["SUCCESS", ["before_start", "called", "on_success 'well'", "after_return SUCCESS"]])
def handlers_of_success(stage: Any) -> Any:
    return handlers(stage, tasks.handled.delay("well"))


@scenario(
    value=["FAILURE", ["before_start", "called", "on_failure ValueError('fail') ['fail']", "after_return FAILURE"]]
)
def handlers_of_failure(stage: Any) -> Any:
    return handlers(stage, tasks.handled.delay("fail"))


@scenario()
def handlers_of_a_retry(stage: Any) -> Any:
    result = tasks.handled.delay("retry")
    stage.noted(f"handlers:{result.id}", 7)
    return [result.get(timeout=20), sorted(noted(result))]  # the second run may overtake the first one's end


@scenario()
def handlers_of_a_time_limit(stage: Any) -> Any:
    return handlers(stage, tasks.handled_too_long.delay())


@scenario(ends=2, value=["REVOKED", "TaskRevokedError('revoked')", "held"])
def revoked_while_it_waits(stage: Any) -> Any:
    gate = fresh()
    holder = tasks.hold.delay(gate)
    stage.noted(f"holding:{gate}", 1)
    result = add.apply_async((1, 1), countdown=0.7)
    result.revoke()
    told = stage.told(result)
    stage.open_gate(gate)
    return [*told, holder.get(timeout=20)]


@scenario(value=["REVOKED", "TaskRevokedError('terminated')"])
def terminated(stage: Any) -> Any:
    gate = fresh()
    result = tasks.hold.delay(gate)
    stage.noted(f"holding:{gate}", 1)
    result.revoke(terminate=True)
    return stage.told(result)


@scenario(value=["REVOKED", "TaskRevokedError('terminated')"])
def terminated_by_kill(stage: Any) -> Any:
    gate = fresh()
    result = tasks.hold.delay(gate)
    stage.noted(f"holding:{gate}", 1)
    app.control.terminate(result.id, signal="SIGKILL")
    return stage.told(result)


@scenario(ends=1, value="held")
def revoked_too_late(stage: Any) -> Any:
    """Without `terminate`, a running task continues."""
    gate = fresh()
    result = tasks.hold.delay(gate)
    stage.noted(f"holding:{gate}", 1)
    result.revoke()
    app.control.ping(timeout=0.3)
    stage.open_gate(gate)
    return result.get(timeout=20)


@scenario(ends=4, value=[4, True])
def rate_limit(stage: Any) -> Any:
    key = fresh()
    for _ in range(4):
        tasks.limited.delay(key)
    times = [float(each) for each in stage.noted(key, 4)]
    return [len(times), max(times) - min(times) >= 0.5]


@scenario(ends=4, value=[4, True])
def a_rate_limit_holds_up_nobody_else(stage: Any) -> Any:
    key = fresh()
    limited = [tasks.rarely.delay(key) for _ in range(3)]
    value = add.delay(2, 2).get(timeout=20)
    early = len(stage.noted(key)) < 3
    for each in limited:
        each.get(timeout=20)
    return [value, early]


@scenario(value=[["SUCCESS", 13], 13])
def called_as_a_function(stage: Any) -> Any:
    return [stage.told(tasks.calls_another.delay(4)), tasks.calls_another(4)]


@scenario(ends=3, value=[["SUCCESS", [2, True]], ["ran", "ran"]])
def sent_around_a_function_call(stage: Any) -> Any:
    key = fresh()
    return [stage.told(tasks.calls_and_goes_on.delay(key)), stage.noted(key, 2)]


@scenario(value=["SUCCESS", 3])
def shared(stage: Any) -> Any:
    return stage.told(tasks.shared.delay(2))


@scenario(ends=1, value=["alive", ["ran", "ran"]])
def its_process_is_killed(stage: Any) -> Any:
    """With acks_late and reject_on_worker_lost, which plain Celery needs for that."""
    key = fresh()
    result = tasks.dies_once.delay(key)
    return [result.get(timeout=30), stage.noted(key)]


@scenario(ends=0, value=["SUCCESS", 1])
def events_switched_off(stage: Any) -> Any:
    return stage.told(tasks.unseen.delay())


@scenario(ends=2, value=[4, 6])
def two_apps(stage: Any) -> Any:
    """A second app in the process, which is left unchanged."""
    other = Celery("other", broker=app.conf.broker_url, backend=app.conf.result_backend, set_as_current=False)
    other.conf.task_send_sent_event = True
    return [
        add.delay(2, 2).get(timeout=20),
        other.send_task("tests.support.parity_app.add", (3, 3)).get(timeout=20),
    ]


@scenario(ends=2)
def beat(stage: Any) -> Any:
    """A real `celery beat`, with an entry for every second."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "tests.support.parity_app",
            "beat",
            "-s",
            os.path.join(folder, "schedule"),
        ]
        process = subprocess.Popen([*command, "--pidfile="], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            ticks = len(stage.noted("ticks:beat", 2)) >= 2
        finally:
            process.terminate()
            process.wait(10)
    stage.roots |= {each for each, events in stage.listener.events.items() if "tick" in str(events[0].get("name"))}
    return ticks


@scenario(ends=1, value=["ran", "ran"])
def the_same_id_twice(stage: Any) -> Any:
    """Two messages with one id are two runs in plain Celery. In the ledger they are one task."""
    key, task_id = fresh(), fresh()
    for _ in range(2):
        tasks.forget.apply_async((key,), task_id=task_id)
    return stage.noted(key, 1 if os.environ.get("PARITY_ADOPT") else 2)


@scenario(ends=1, value=[1, "REVOKED"])
def queue_length(stage: Any) -> Any:
    """Return the length of a queue that no worker serves."""
    queue = fresh()
    result = add.apply_async((1, 1), queue=queue)
    with app.connection_for_read() as connection:
        length = connection.default_channel.client.llen(queue)
    result.revoke()
    if not os.environ.get("PARITY_ADOPT"):  # no worker will ever look at it
        app.backend.mark_as_revoked(result.id, "revoked")
        with app.events.default_dispatcher() as dispatcher:
            dispatcher.send("task-revoked", uuid=result.id, terminated=False, signum=None, expired=False)
        tasks.note(f"signals:{result.id}", "task_revoked terminated=False expired=False")
    return [length, stage.told(result)[0]]


def old_app() -> Celery:
    """Return an app that sends messages which Celery 3 can read."""
    old = Celery("old", broker=app.conf.broker_url, backend=app.conf.result_backend, set_as_current=False)
    old.conf.update(task_protocol=1, task_send_sent_event=app.conf.task_send_sent_event)
    if os.environ.get("PARITY_ADOPT"):
        install(old, adopt=True)
    return old


@scenario(value=["SUCCESS", 4])
def protocol_1(stage: Any) -> Any:
    return stage.told(old_app().send_task("tests.support.parity_app.add", (2, 2)))


@of_the_adopted_app(value=["SUCCESS", 7])
def protocol_1_and_canvas(stage: Any) -> Any:
    """With that protocol the next step of a chain is a callback."""
    old = old_app()
    plus, total = (old.signature(f"tests.support.parity_app.{name}", app=old) for name in ("add", "xsum"))
    steps = chain(plus.clone((1, 1)), group(plus.clone((n,)) for n in (1, 2)), total, app=old)
    return stage.told(steps.apply_async())


@scenario(value=["SUCCESS", 3_000_000])
def a_large_result(stage: Any) -> Any:
    state, value = stage.told(tasks.large.delay(3_000_000))
    return [state, len(value)]


@scenario(value=[["FAILURE", "ValueError('noted')"], ["on_accepted", "on_failure"]])
def a_request_of_its_own(stage: Any) -> Any:
    result = tasks.noted_request.delay()
    return [stage.told(result), stage.noted(f"request:{result.id}", 2)]


@scenario(value=["FAILURE", ["on_accepted", "on_failure", "on_timeout True"]])
def a_request_of_its_own_whose_time_is_up(stage: Any) -> Any:
    result = tasks.noted_request.apply_async((20,), soft_time_limit=0.2)
    return [stage.told(result)[0], sorted(stage.noted(f"request:{result.id}", 3))]


@scenario(value=["FAILURE", ["on_accepted", "on_failure", "on_timeout False"]])
def a_request_of_its_own_whose_hard_limit_is_over(stage: Any) -> Any:
    result = tasks.noted_request.apply_async((20,), time_limit=0.3)
    return [stage.told(result)[0], sorted(stage.noted(f"request:{result.id}", 3))]


@scenario(value=[["SUCCESS", 5], ["handled"]])
def a_strategy_of_its_own(stage: Any) -> Any:
    result = tasks.by_strategy.delay(5)
    return [stage.told(result), stage.noted(f"strategy:{result.id}", 1)]


@scenario(ends=3, value=["SUCCESS", [1, 2]])
def a_chord_with_a_strategy_of_its_own(stage: Any) -> Any:
    return stage.told(chord([tasks.by_strategy.s(1), add.s(1, 1)])(tasks.gather.s()))


@of_the_adopted_app([["SUCCESS", 5], []])
def a_strategy_its_producer_does_not_know(stage: Any) -> Any:
    """Its record still runs."""
    stranger = Celery("stranger", broker=app.conf.broker_url, backend=app.conf.result_backend, set_as_current=False)
    install(stranger, adopt=True)
    result = stranger.send_task("tests.support.parity_app.by_strategy", (5,))
    return [stage.told(result), stage.noted(f"strategy:{result.id}")]


LARGE = (600_000, 500_000, 400_000)


@scenario(ends=4, value=["SUCCESS", [*LARGE]])
def a_chord_whose_body_gets_more_than_a_payload_holds(stage: Any) -> Any:
    return stage.told(chord([tasks.large.s(size) for size in LARGE])(tasks.lengths.s()))


@scenario(ends=4, value=["SUCCESS", [*LARGE]])
def a_chord_with_a_large_body_that_retries(stage: Any) -> Any:
    return stage.told(chord([tasks.large.s(size) for size in LARGE])(tasks.lengths_at_last.s()))


@scenario(ends=5, value=[[*LARGE], [*LARGE]])
def a_chord_with_a_large_group_body(stage: Any) -> Any:
    body = group(tasks.lengths.s(), tasks.lengths.s())
    return chord([tasks.large.s(size) for size in LARGE])(body).get(timeout=20)


@scenario(ends=3, value=["SUCCESS", 3])
def a_chord_of_large_results(stage: Any) -> Any:
    return stage.told(chord([tasks.large.s(3_000_000), tasks.large.s(1_500_000)])(add.si(1, 2)))


@scenario(ends=3, value=["SUCCESS", 3])
def a_chord_of_large_results_and_long_ids(stage: Any) -> Any:
    header = [with_long_id(tasks.large.s(3_000_000)), with_long_id(tasks.large.s(900_000))]
    return stage.told(chord(header)(add.si(1, 2)))


@scenario(ends=0, value=["SUCCESS", 2_000_000])
def a_large_argument(stage: Any) -> Any:
    try:
        return stage.told(tasks.length.delay("x" * 2_000_000))
    except PayloadTooLargeError as error:
        return type(error).__name__


@scenario(ends=2, value=["SUCCESS", "rosebud"])
def a_secret(stage: Any) -> Any:
    return stage.told(chain(add.s("rose", "bud"), add.s(""))())


@of_the_adopted_app(["FAILURE", "WorkerLostError", 6])
def dies_for_ever(stage: Any) -> Any:
    key = fresh()
    result = tasks.always_dies.delay(key)
    error = result.get(timeout=50, propagate=False)
    return [result.state, type(error).__name__, len(stage.noted(key))]


@of_the_adopted_app(["FAILURE", "WorkerLostError('its process exited with code 3, once too often')"])
def leaves_for_ever(stage: Any) -> Any:
    return stage.told(tasks.leave.delay(3))


@of_the_adopted_app(["SUCCESS", ["second", 3]])
def retried_without_throwing_in_a_chord(stage: Any) -> Any:
    return stage.told(chord([tasks.retry_quietly.s(fresh()), add.s(1, 2)])(tasks.gather.s()))


@of_the_adopted_app(["SUCCESS", ["second", 3]])
def retried_without_throwing_in_a_chord_of_long_ids(stage: Any) -> Any:
    return stage.told(chord([with_long_id(tasks.retry_quietly.s(fresh())), add.s(1, 2)])(tasks.gather.s()))


@of_the_adopted_app(["SUCCESS", 1500, "1500"])
def more_than_a_commit_takes(stage: Any) -> Any:
    """There are too many tasks for one commit. This is reported for the adopted app only."""
    key = fresh()
    result = tasks.become_many.delay(key, 1500)
    values = result.get(timeout=60)
    return [result.state, len(values), notes().get(key)]


# --- inspection -------------------------------------------------------------------------------------------------------


@scenario(ends=1, value=[[["tests.support.parity_app.hold", True, True]], []])
def inspect_active(stage: Any) -> Any:
    gate = fresh()
    result = tasks.hold.delay(gate)
    stage.noted(f"holding:{gate}", 1)
    stage.wait(lambda: "task-started" in stage.event_types(result.id))
    (active,) = app.control.inspect(timeout=5, limit=1).active().values()
    seen = [[each["name"], each["args"] == [gate], each["id"] == result.id] for each in active]
    stage.open_gate(gate)
    result.get(timeout=20)
    stage.wait(lambda: "task-succeeded" in stage.event_types(result.id))
    (active,) = app.control.inspect(timeout=5, limit=1).active().values()
    return [seen, active]


@scenario(ends=1)
def query_task(stage: Any) -> Any:
    gate = fresh()
    result = tasks.hold.delay(gate)
    stage.noted(f"holding:{gate}", 1)
    stage.wait(lambda: "task-started" in stage.event_types(result.id))
    (found,) = app.control.inspect(timeout=5, limit=1).query_task(result.id).values()
    stage.open_gate(gate)
    return [[state, about["name"]] for state, about in found.values()]


@scenario(ends=0)
def inspect_registered(stage: Any) -> Any:
    (names,) = app.control.inspect(timeout=5, limit=1).registered().values()
    return sorted(names)


@scenario(ends=1, value=["tests.support.parity_app.add"])
def inspect_scheduled(stage: Any) -> Any:
    """A task waits for its ETA in the worker or, if adopted, in the ledger."""
    result = add.apply_async((1, 1), countdown=1)

    def scheduled() -> list[str]:
        (found,) = app.control.inspect(timeout=5, limit=1).scheduled().values()
        return [each["request"]["name"] for each in found]

    seen = stage.wait(scheduled) if not os.environ.get("PARITY_ADOPT") else scheduled()
    result.get(timeout=20)
    return seen


@scenario(ends=6)
def inspect_reserved(stage: Any) -> Any:
    """Tasks that were fetched but have not begun, because Celery prefetches for its pool."""
    gate = fresh()
    results = [tasks.hold.delay(gate) for _ in range(6)]
    stage.noted(f"holding:{gate}", 2)

    def reserved() -> int:
        told = app.control.inspect(timeout=5, limit=1).reserved() or {}  # None: the worker was too busy to answer
        return sum(map(len, told.values()))

    seen = stage.wait(lambda: reserved() == 4) if not os.environ.get("PARITY_ADOPT") else reserved() == 4
    stage.open_gate(gate, 6)
    for each in results:
        each.get(timeout=20)
    return seen


@scenario(ends=1)
def stats(stage: Any) -> Any:
    """How many tasks of a name a worker has received."""
    name = "tests.support.parity_app.gather"

    def total() -> int:
        (told,) = app.control.inspect(timeout=5, limit=1).stats().values()
        return int(told["total"].get(name, 0))

    before = total()
    tasks.gather.delay([]).get(timeout=20)
    return total() - before
