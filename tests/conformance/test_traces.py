"""Spans of real workers, as an OTLP receiver sees them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from relier import SyncTaskReceipt, rl_task, trace
from tests.support import PYTHONPATH
from tests.support.conformance.engine import environment_of
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


def links_of(span: Any) -> list[bytes]:
    return [link.span_id for link in span.links]


def order(stage: Stage, receiver: OtlpReceiver) -> str:
    """Send an HTTP request to an application, and let a relay send what it wrote into its outbox. Return the id."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.conformance.traced_shop", stage.place, *CALLER.split("\n")],
        env=os.environ | environment_of(stage.settings) | {"CONFORMANCE_OTLP": receiver.url, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.core
def test_a_request_an_outbox_a_killed_attempt_its_revival_a_retry_and_a_chain_are_one_trace(
    stage: Stage, receiver: OtlpReceiver
) -> None:
    env = {"CONFORMANCE_OTLP": receiver.url}
    victim = stage.start_worker(MODULE, env=env, heartbeat_ttl=1.0)
    receipt = SyncTaskReceipt[str](order(stage, receiver))
    stage.wait_for_notes("runs")
    stage.start_worker(MODULE, env=env)
    victim.kill()
    receipt.result(PATIENCE_S)
    wait_until(lambda: receiver.named(f"process {MODULE}.mail"), PATIENCE_S, "all spans have arrived")

    (request,), (push,), (relay,) = map(receiver.named, ("checkout", f"push {MODULE}.fulfil", "relay ledger"))
    revived, retried = receiver.named(f"process {MODULE}.fulfil")
    (reserve,) = receiver.named("step reserve")
    chained = [*receiver.named(f"process {MODULE}.invoice"), *receiver.named(f"process {MODULE}.mail")]
    assert {span.trace_id.hex() for span in receiver.spans} == {TRACE_ID}
    assert {span.trace_state for span in receiver.spans} == {"vendor=7"}
    assert push.parent_span_id == request.span_id
    assert {span.parent_span_id for span in (relay, revived, retried)} == {push.span_id}
    killed = reserve.parent_span_id  # its own span ended with its process
    assert [links_of(span) for span in (revived, retried)] == [[killed], [revived.span_id]]
    assert [span.parent_span_id for span in chained] == [retried.span_id] * 2


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
    assert [links_of(span) for span in (first, second)] == [[], [first.span_id]]


@pytest.mark.core
def test_an_isolated_task_has_a_span_and_the_baggage_of_its_push(stage: Stage, receiver: OtlpReceiver) -> None:
    stage.start_worker(MODULE, env={"CONFORMANCE_OTLP": receiver.url})
    assert push_traced("alone").result(PATIENCE_S) == "acme"
    wait_until(lambda: receiver.named(f"process {MODULE}.alone"), PATIENCE_S, "the span has arrived")
