"""Spans of real workers, as an OTLP receiver sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from relier import SyncTaskReceipt, rl_task, trace
from tests.support.conformance.stage import PATIENCE_S, Stage
from tests.support.otlp import OtlpReceiver, otlp_receiver
from tests.support.servers import wait_until

MODULE = "tests.support.conformance.traced_tasks"
TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = f"00-{TRACE_ID}-{SPAN_ID}-01\nvendor=7\ntenant=acme"


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as found:
        yield found


def named(name: str) -> Any:
    """Return a task of the worker by its name. Its module would record spans in this process."""

    def stand_in() -> str:
        raise AssertionError("a worker runs it")

    return rl_task(name=f"{MODULE}.{name}")(stand_in)


def push_traced(name: str) -> Any:
    before = trace.inherited.set(CALLER)
    try:
        return named(name).push()
    finally:
        trace.inherited.reset(before)


@pytest.mark.core
def test_attempts_steps_and_pushes_of_a_task_are_one_trace(stage: Stage, receiver: OtlpReceiver) -> None:
    stage.start_worker(MODULE, env={"CONFORMANCE_OTLP": receiver.url})
    child = push_traced("flaky").result(PATIENCE_S)
    assert SyncTaskReceipt[str](child).result(PATIENCE_S) == "acme"
    shipped = f"process {MODULE}.shipped"
    wait_until(lambda: receiver.named(shipped), PATIENCE_S, "all spans have arrived")
    first, second = receiver.named(f"process {MODULE}.flaky")
    (step,) = receiver.named("step charge")
    (push,) = receiver.named(f"push {MODULE}.shipped")
    (last,) = receiver.named(shipped)
    assert {span.trace_id.hex() for span in receiver.spans} == {TRACE_ID}
    assert [span.parent_span_id.hex() for span in (first, second)] == [SPAN_ID, SPAN_ID]
    assert (step.parent_span_id, push.parent_span_id, last.parent_span_id) == (
        first.span_id,
        second.span_id,
        push.span_id,
    )
    assert {span.trace_state for span in (first, last)} == {"vendor=7"}
    assert first.status.message == "ConnectionError: not yet"
    assert [len(span.links) for span in (first, second)] == [0, 1]


@pytest.mark.core
def test_an_isolated_task_has_a_span_and_the_baggage_of_its_push(stage: Stage, receiver: OtlpReceiver) -> None:
    stage.start_worker(MODULE, env={"CONFORMANCE_OTLP": receiver.url})
    assert push_traced("alone").result(PATIENCE_S) == "acme"
    wait_until(lambda: receiver.named(f"process {MODULE}.alone"), PATIENCE_S, "the span has arrived")
