"""Record OpenTelemetry spans of pushes, attempts, steps and relays, by the conventions for messaging.

    from relier.otel import use_tracing

    use_tracing()

push <task>      the push, or the write into an outbox. Its context travels with the task
relay <target>   a relay sends rows of an outbox
process <task>   one attempt, in the trace of its push. Later attempts also have a link that says why they run
step <name>      a durable step that runs. A step that an earlier attempt recorded has no span

The API of OpenTelemetry is enough: without an SDK, no span is recorded, but traces still pass from task to task. Not
covered: the span of an attempt whose process is killed never ends, so it is never exported; `relier.deaths` of the next
attempt counts it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any

from relier import trace as traces
from relier.errors import ConfigurationError
from relier.run.application.middleware import use_middleware
from relier.run.context import TaskContext
from relier.submit.push_middleware import Push
from relier.version import __version__, how_to_install

try:
    from opentelemetry import trace
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.trace import Link, Span, SpanKind, Tracer
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ConfigurationError(
        f"relier.otel needs the API of OpenTelemetry, which is not installed ({error}); {how_to_install('otel')}"
    ) from error

TRACEPARENT = re.compile(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
SEARCHED_BYTES = 2048  # of a row's body, for its traceparent
MOST_LINKS = 100


def use_tracing() -> None:
    """Record spans in this process, with the application's tracer provider. A second call does nothing more.

    Call this where your tasks are defined, so that producers and all processes of a worker do.
    """
    traces.spans = OpenTelemetrySpans()
    use_middleware(run=[attempt_span], push=[push_span])


async def push_span(call_next: Callable[[Push], Coroutine[Any, Any, list[Any]]], push: Push) -> list[Any]:
    """Wrap a push in a span. The tasks of a bulk share it."""
    queue = push.options.queue or push.task.options.queue
    attributes = _about("send", "push", push.task.name, queue)
    if len(push.calls) != 1:
        attributes["messaging.batch.message_count"] = len(push.calls)
    with _tracer().start_as_current_span(
        f"push {push.task.name}", kind=SpanKind.PRODUCER, attributes=attributes
    ) as span:
        receipts = await call_next(push)
        if receipts and len(receipts) == 1:  # a middleware inside this one may return None, which is refused later
            span.set_attribute("messaging.message.id", receipts[0].id)
        return receipts


async def attempt_span(call_next: Callable[[TaskContext], Coroutine[Any, Any, Any]], ctx: TaskContext) -> Any:
    """Wrap an attempt in a span whose parent is the push."""
    about = ctx.metadata
    parent = _context_of(traces.headers_of(traces.inherited.get()))
    attributes = _about("process", "process", ctx.task_name, about["queue"]) | {
        "messaging.message.id": ctx.task_id,
        "relier.retries": about["retries"],
        "relier.deaths": about["deaths"],
    }
    token = attach(parent)
    try:
        with _tracer().start_as_current_span(
            f"process {ctx.task_name}", kind=SpanKind.CONSUMER, attributes=attributes, links=_repeats(parent, about)
        ):
            return await call_next(ctx)
    finally:
        detach(token)


class OpenTelemetrySpans:
    """Record spans of steps and relays."""

    def step(self, name: str) -> AbstractContextManager[Span]:
        return _tracer().start_as_current_span(f"step {name}", attributes={"relier.step": name})

    def relay(self, kind: str, bodies: Sequence[bytes]) -> AbstractContextManager[Span]:
        """Return a span in the trace of the rows if they share one; otherwise it links to the trace of each."""
        found = dict.fromkeys(match.group() for body in bodies if (match := TRACEPARENT.search(body[:SEARCHED_BYTES])))
        pushes = [_context_of({"traceparent": parent.decode()}) for parent in list(found)[:MOST_LINKS]]
        shared = len({parent.split(b"-")[1] for parent in found}) == 1
        attributes = _about("send", "relay", "", kind) | {"messaging.batch.message_count": len(bodies)}
        return _tracer().start_as_current_span(
            f"relay {kind}",
            context=pushes[0] if shared else None,
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            links=[Link(trace.get_current_span(push).get_span_context()) for push in pushes],
        )


def _tracer() -> Tracer:
    return trace.get_tracer("relier", __version__)


def _about(kind: str, operation: str, task_name: str, destination: str) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "messaging.system": "relier",
        "messaging.operation.type": kind,
        "messaging.operation.name": operation,
        "messaging.destination.name": destination,
    }
    return attributes | {"relier.task.name": task_name} if task_name else attributes


def _context_of(headers: dict[str, str]) -> Context:
    return W3CBaggagePropagator().extract(headers, TraceContextTextMapPropagator().extract(headers))


def _repeats(parent: Context, about: dict[str, Any]) -> list[Link]:
    """Return a link to the push for every reason why this is not the first attempt."""
    pushed = trace.get_current_span(parent).get_span_context()
    return [Link(pushed, {"relier.repeats_after": reason}) for reason in ("retries", "deaths") if about[reason]]
