"""Spans of pushes, attempts, steps and relays, in the SDK's own memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, TraceIdRatioBased

from relier import Client, Retries, SyncTaskReceipt, TaskContext, chain, rl_task
from relier.otel import _drops_unsampled, span_id_of, use_tracing
from relier.outbox.publish.target import LedgerTarget
from relier.outbox.relay.batch import ClaimedBatch
from relier.submit import push_middleware
from relier.testing import VirtualStore, kill_after_step, run_pending, store
from relier.trace import current_trace
from tests.support.outbox_shop import Shop, client, receipt

__all__ = ["client"]  # a fixture

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))


@rl_task(name="otel.charge", retries=Retries(attempts=1, backoff=1, jitter=0))
async def charge(ctx: TaskContext, order: int) -> int:
    await ctx.step("card", _double, order)
    if not ctx.metadata["retries"]:
        raise ConnectionError("the bank is unreachable")
    return await ctx.step("book", _double, order)


@rl_task(name="otel.double")
def double(amount: int) -> int:
    return 2 * amount


@rl_task(name="otel.fulfil", retries=Retries(attempts=1, backoff=1, jitter=0))
def fulfil(ctx: TaskContext, order: int) -> str:
    ctx.step_sync("reserve", _double, order)
    if not ctx.metadata["retries"]:
        raise ConnectionError("the bank is away")
    return chain(double.s(order), mail.s()).push().id


@rl_task(name="otel.outer")
def outer() -> tuple[str, str]:
    with trace.get_tracer("shop").start_as_current_span("own"):
        return current_trace(), mail.push(5).id


@rl_task(name="otel.mail")
def mail(amount: int) -> str:
    return f"{amount} for {baggage.get_baggage('tenant')}"


def _double(number: int) -> int:
    return 2 * number


@pytest.fixture(autouse=True)
def _tracing() -> None:
    trace.set_tracer_provider(provider)  # only the first call has an effect
    exporter.clear()
    use_tracing()
    use_tracing()


@pytest.fixture
def virtual() -> Iterator[VirtualStore]:
    with store() as opened:
        yield opened


def spans(name: str = "") -> list[Any]:
    return [span for span in exporter.get_finished_spans() if name in ("", span.name)]


def run_relay(shop: Shop) -> None:
    relay = shop.relay()
    relay.turn(relay.turn(ClaimedBatch(relay.relay_id)))


def request() -> Any:
    return trace.get_tracer("shop").start_as_current_span("GET /checkout")


def links_of(span: Any) -> list[int]:
    return [link.context.span_id for link in span.links]


def test_a_request_its_outbox_a_killed_attempt_a_retry_and_a_chain_are_one_trace(
    virtual: VirtualStore, tmp_path: Path
) -> None:
    token = context.attach(baggage.set_baggage("tenant", "acme"))
    with Shop(f"sqlite:///{tmp_path}/shop.db", virtual.client) as shop:
        with request(), shop.session() as session, session.begin():
            shop.outbox.add(session, fulfil, 5)
        context.detach(token)
        relay = shop.relay(LedgerTarget(virtual.client))
        relay.turn(relay.turn(ClaimedBatch(relay.relay_id)))
        ran = run_pending(kill_after_step("reserve"))
    assert ran[-1].result == "10 for acme"
    assert [(each.name, each.outcome) for each in ran] == [
        ("otel.fulfil", "killed"),
        ("otel.fulfil", "retried"),
        ("otel.fulfil", "done"),
        ("otel.double", "done"),
        ("otel.mail", "done"),
    ]
    (root,), (push,), (relayed,) = spans("GET /checkout"), spans("push otel.fulfil"), spans("relay ledger")
    killed, retried, done = spans("process otel.fulfil")
    assert {span.context.trace_id for span in spans()} == {root.context.trace_id}
    parents = [span.parent.span_id for span in (push, relayed, killed, retried, done)]
    assert parents == [root.context.span_id, *[push.context.span_id] * 4]
    assert [links_of(each) for each in (killed, retried, done)] == [
        [],
        [killed.context.span_id],
        [retried.context.span_id],
    ]
    assert [each.attributes["relier.attempt"] for each in (killed, retried, done)] == [1, 2, 3]
    (reserved,) = spans("step reserve")  # a recorded step has no second span
    assert reserved.parent.span_id == killed.context.span_id
    chained = [*spans("process otel.double"), *spans("process otel.mail")]
    assert [span.parent.span_id for span in chained] == [done.context.span_id] * 2  # the attempt that pushed the chain
    assert {span.kind for span in chained} == {trace.SpanKind.CONSUMER}


def test_attempts_of_a_task_that_was_pushed_without_a_trace_share_one(
    virtual: VirtualStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as producer:
        producer.setattr(push_middleware, "_for_all_tasks", [])  # a producer that records no spans
        charge.push(5)
    run_pending()
    first, second = spans("process otel.charge")
    assert first.parent is second.parent is None
    assert first.context.trace_id == second.context.trace_id
    assert links_of(second) == [first.context.span_id]
    assert abs((first.context.trace_id >> 96) - time.time()) < 3600, "it begins with the time of the push"


def test_the_ids_of_other_spans_are_those_of_the_application(virtual: VirtualStore) -> None:
    receipt = charge.push(5)
    run_pending()
    (attempt, _), (step,) = spans("process otel.charge"), spans("step book")
    assert attempt.context.span_id == span_id_of(receipt.id, 1)
    assert step.context.span_id not in {span_id_of(receipt.id, n) for n in range(4)}


@pytest.mark.parametrize("flags", [0, 2], ids=["plain", "random"])
def test_a_trace_that_was_sampled_out_passes_without_spans(virtual: VirtualStore, flags: int) -> None:
    parent = trace.SpanContext(0x5AFE, 0x7, True, trace.TraceFlags(flags), trace.TraceState([("vendor", "7")]))
    token = context.attach(baggage.set_baggage("tenant", "acme"))
    with trace.use_span(trace.NonRecordingSpan(parent)):
        receipt = outer.push()
    context.detach(token)
    run_pending()
    assert spans() == []
    pushed, inner = receipt.result()
    assert SyncTaskReceipt[str](inner).result() == "5 for acme"
    traceparent, state, tenant = pushed.split("\n")
    assert (traceparent[:36], state, tenant) == (f"00-{0x5AFE:032x}-", "vendor=7", "tenant=acme")
    assert not int(traceparent[-2:], 16) & 1


def test_a_sampler_that_ignores_the_parent_is_asked() -> None:
    assert _drops_unsampled(TracerProvider())
    assert _drops_unsampled(TracerProvider(sampler=ALWAYS_OFF))
    assert not _drops_unsampled(TracerProvider(sampler=ALWAYS_ON))
    assert not _drops_unsampled(TracerProvider(sampler=TraceIdRatioBased(0.5)))
    assert not _drops_unsampled(TracerProvider(sampler=ParentBased(ALWAYS_OFF, remote_parent_not_sampled=ALWAYS_ON)))


def test_a_push_is_the_parent_of_its_attempt(virtual: VirtualStore) -> None:
    with request():
        pushed = mail.push(5)
    run_pending()
    (push,), (attempt,) = spans("push otel.mail"), spans("process otel.mail")
    assert attempt.parent.span_id == push.context.span_id
    assert push.kind is trace.SpanKind.PRODUCER
    assert dict(push.attributes) == {
        "messaging.system": "relier",
        "messaging.operation.type": "send",
        "messaging.operation.name": "push",
        "messaging.destination.name": "default",
        "messaging.message.id": pushed.id,
        "relier.task.name": "otel.mail",
    }


def test_a_bulk_has_one_span(virtual: VirtualStore) -> None:
    mail.push_many([(1,), (2,), (3,)])
    (push,) = spans("push otel.mail")
    assert push.attributes["messaging.batch.message_count"] == 3
    run_pending()
    assert {each.parent.span_id for each in spans("process otel.mail")} == {push.context.span_id}


def test_an_error_is_recorded_in_the_span_of_its_attempt(virtual: VirtualStore) -> None:
    charge.push(5)
    run_pending(within=timedelta(milliseconds=1))
    (attempt,) = spans("process otel.charge")
    assert attempt.status.description == "ConnectionError: the bank is unreachable"
    assert [event.name for event in attempt.events] == ["exception"]


def test_a_relay_sends_in_the_trace_of_the_push(client: Client, tmp_path: Path) -> None:
    client.open()
    with Shop(f"sqlite:///{tmp_path}/shop.db", client) as shop:
        with request():
            shop.place(1)
        run_relay(shop)
    (push,), (relayed,) = spans(f"push {receipt.name}"), spans("relay ledger")
    assert relayed.context.trace_id == push.context.trace_id
    assert [link.context.span_id for link in relayed.links] == [push.context.span_id]


def test_rows_of_several_traces_are_linked(client: Client, tmp_path: Path) -> None:
    client.open()
    with Shop(f"sqlite:///{tmp_path}/shop.db", client) as shop:
        shop.place(1)
        shop.place(2)
        run_relay(shop)
    (relayed,) = spans("relay ledger")
    assert relayed.parent is None
    assert len(relayed.links) == 2


API_ALONE = """
import sys
sys.modules["opentelemetry.sdk"] = None
from relier import rl_task
from relier.otel import use_tracing
from relier.testing import run_pending, store
use_tracing()

@rl_task(name="alone.add")
def add(a: int, b: int) -> int:
    return a + b

with store():
    receipt = add.push(2, 3)
    run_pending()
    print(receipt.result())
"""


def test_the_api_works_without_an_sdk() -> None:
    done = subprocess.run([sys.executable, "-c", API_ALONE], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("5\n", "")


def test_without_the_api_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import relier.otel"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install '.[otel]'" in done.stderr
