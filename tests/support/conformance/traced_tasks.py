"""Tasks whose spans go to an OTLP receiver. Each process makes its exporter after the fork, in its lifespan."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from opentelemetry import baggage, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from relier import Retries, TaskContext, chain, lifespan, rl_task
from relier.otel import use_tracing
from tests.support.conformance.signals import block_until_noted, note

use_tracing()


def provide_tracer() -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(os.environ["CONFORMANCE_OTLP"])))
    trace.set_tracer_provider(provider)
    return provider


@lifespan
async def exporting() -> AsyncIterator[None]:
    provider = provide_tracer()
    yield
    provider.shutdown()


@rl_task(retries=Retries(attempts=1, backoff=0.01))
def flaky(ctx: TaskContext) -> str:
    ctx.step_sync("charge", int, "5")
    if not ctx.metadata["retries"]:
        raise ConnectionError("not yet")
    return str(shipped.push().id)


@rl_task
async def shipped() -> str:
    return str(baggage.get_baggage("tenant"))


@rl_task(isolate=True)
async def alone() -> str:
    return str(baggage.get_baggage("tenant"))


@rl_task(retries=Retries(attempts=1, backoff=0.01))
def fulfil(ctx: TaskContext, folder: str) -> str:
    """Wait in the first attempt, fail in the second, and push a chain in the third."""
    ctx.step_sync("reserve", int, "5")
    if ctx.attempt == 1:
        note(folder, "runs", ctx.worker_id)
        block_until_noted(folder, "go")
    if not ctx.metadata["retries"]:
        raise ConnectionError("not yet")
    return chain(invoice.s(5), mail.s()).push().id


@rl_task
def invoice(amount: int) -> int:
    return 2 * amount


@rl_task(isolate=True)
async def mail(amount: int) -> str:
    return f"{amount} for {baggage.get_baggage('tenant')}"
