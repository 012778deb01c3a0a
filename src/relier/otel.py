"""Record OpenTelemetry spans of pushes, attempts, steps and relays, by the conventions for messaging.

    from relier.otel import use_tracing

    use_tracing()

push <task>      the push, or the write into an outbox. Its context travels with the task
relay <target>   a relay sends rows of an outbox
process <task>   one attempt, in the trace of its push. Each later attempt has a link to the attempt before it
step <name>      a durable step that runs. A step that an earlier attempt recorded has no span

The API of OpenTelemetry is enough: without an SDK, no span is recorded, but traces still pass from task to task.

The span id of an attempt is computed from the task's id and the number of the attempt. So the next attempt can link to
it, wherever that runs, and although a killed process leaves nothing behind. Attempts of a task that was pushed without
a trace share one that is computed from the task's id.

Not covered: the span of an attempt whose process is killed never ends, so it is never exported. Its steps are, and the
link of the next attempt names it; `relier.deaths` counts it.
An attempt that a worker hands back when it shuts down is not counted, so the next attempt has its number, and the two
spans have the same id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import lru_cache
from hashlib import blake2b
from typing import Any, cast

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
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, TraceFlags, Tracer, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ConfigurationError(
        f"relier.otel needs the API of OpenTelemetry, which is not installed ({error}); {how_to_install('otel')}"
    ) from error

# In the JSON of a row: the traceparent and, behind an escaped newline, the tracestate.
CARRIED = re.compile(rb'(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})(?:\\n([^\\"]*))?')
SEARCHED_BYTES = 2048  # of a row's body, for its traceparent
MOST_LINKS = 100
SAMPLED_AT, LATER = 54, 55  # where a traceparent ends in a digit that says whether the trace is sampled
UNSAMPLED = frozenset("02468ace")
_wanted: ContextVar[tuple[int, int] | None] = ContextVar("relier_attempt_span", default=None)  # trace id and span id


def use_tracing() -> None:
    """Record spans in this process, with the application's tracer provider. A second call does nothing more.

    Call this where your tasks are defined, so that producers and all processes of a worker do.
    """
    traces.spans = OpenTelemetrySpans()
    use_middleware(run=[attempt_span], push=[push_span])


async def push_span(call_next: Callable[[Push], Coroutine[Any, Any, list[Any]]], push: Push) -> list[Any]:
    """Wrap a push in a span. All tasks of a bulk push share one span."""
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
    carried = traces.inherited.get()
    if carried[SAMPLED_AT:LATER] in UNSAMPLED and _drops_unsampled(trace.get_tracer_provider()):
        token = attach(_unsampled(carried))
        try:
            return await call_next(ctx)
        finally:
            detach(token)
    parent = _context_of(traces.headers_of(carried))
    token = attach(parent)
    try:
        with trace.use_span(_start_attempt(ctx, parent), end_on_exit=True):
            return await call_next(ctx)
    finally:
        detach(token)


@lru_cache(maxsize=4)
def _drops_unsampled(provider: TracerProvider) -> bool:
    """Return whether the sampler drops every span whose parent was dropped, as samplers based on the parent do.

    The specification defines how these samplers describe themselves.
    """
    describe = getattr(getattr(_tracer_of(provider), "sampler", None), "get_description", None)
    description = str(describe()) if describe is not None else ""
    by_parent = description.startswith("ParentBased{") and "remoteParentNotSampled:AlwaysOffSampler" in description
    return by_parent or description == "AlwaysOffSampler"


@lru_cache(maxsize=64)
def _unsampled(carried: str) -> Context:
    """Return the context of a trace that was sampled out.

    Most traces of a busy application are sampled out, so their contexts are cached. Tasks of a bulk push share one.
    """
    return _context_of(traces.headers_of(carried))


def _start_attempt(ctx: TaskContext, parent: Context) -> Span:
    """Start the span of an attempt, under the ids that its next attempt links to."""
    tracer, links, about = _tracer(), [], ctx.metadata
    attributes = _about("process", "process", ctx.task_name, about["queue"]) | {
        "messaging.message.id": ctx.task_id,
        "relier.attempt": ctx.attempt,
        "relier.retries": about["retries"],
        "relier.deaths": about["deaths"],
    }
    pushed = trace.get_current_span(parent).get_span_context()
    trace_id = pushed.trace_id if pushed.is_valid else trace_id_of(ctx.task_id, about["pushed_at_ms"])
    if ctx.attempt > 1 and isinstance(getattr(tracer, "id_generator", None), AttemptIds):
        flags = pushed.trace_flags if pushed.is_valid else TraceFlags(TraceFlags.SAMPLED)
        earlier = span_id_of(ctx.task_id, ctx.attempt - 1)
        links = [Link(SpanContext(trace_id, earlier, True, flags, pushed.trace_state))]
    wanted = _wanted.set((trace_id, span_id_of(ctx.task_id, ctx.attempt)))
    try:
        return tracer.start_span(
            f"process {ctx.task_name}", kind=SpanKind.CONSUMER, attributes=attributes, links=links, context=parent
        )
    finally:
        _wanted.reset(wanted)


def span_id_of(task_id: str, attempt: int) -> int:
    """Return the span id of an attempt."""
    return int.from_bytes(blake2b(f"{task_id} {attempt}".encode(), digest_size=8).digest()) or 1


def trace_id_of(task_id: str, pushed_ms: int) -> int:
    """Return the trace id for attempts of a task that was pushed without a trace.

    It begins with the time of the push in seconds, as AWS X-Ray expects. The rest is as good as random for samplers.
    """
    rest = int.from_bytes(blake2b(task_id.encode(), digest_size=12).digest())
    return (pushed_ms // 1000 & 0xFFFFFFFF) << 96 | (rest or 1)


class AttemptIds:
    """Generate the ids that an attempt asks for, and leave all others to the generator of the application."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def generate_trace_id(self) -> int:
        wanted = _wanted.get()
        found: int = self._generator.generate_trace_id() if wanted is None else wanted[0]
        return found

    def generate_span_id(self) -> int:
        wanted = _wanted.get()
        found: int = self._generator.generate_span_id() if wanted is None else wanted[1]
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)


class OpenTelemetrySpans:
    """Record spans of steps and relays."""

    def step(self, name: str) -> AbstractContextManager[Span]:
        return _tracer().start_as_current_span(f"step {name}", attributes={"relier.step": name})

    def relay(self, kind: str, bodies: Sequence[bytes]) -> AbstractContextManager[Span]:
        """Return a span in the trace of the rows if they share one; otherwise it links to the trace of each."""
        matches = (CARRIED.search(body[:SEARCHED_BYTES]) for body in bodies)
        found = dict.fromkeys((match[1].decode(), (match[2] or b"").decode()) for match in matches if match)
        pushes = [
            _context_of({"traceparent": parent, "tracestate": state}) for parent, state in list(found)[:MOST_LINKS]
        ]
        shared = len({parent.split("-")[1] for parent, _ in found}) == 1
        attributes = _about("send", "relay", "", kind) | {"messaging.batch.message_count": len(bodies)}
        return _tracer().start_as_current_span(
            f"relay {kind}",
            context=pushes[0] if shared else None,
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            links=[Link(trace.get_current_span(push).get_span_context()) for push in pushes],
        )


def _tracer() -> Tracer:
    return _tracer_of(trace.get_tracer_provider())


@lru_cache(maxsize=4)
def _tracer_of(provider: TracerProvider) -> Tracer:
    """Return Relier's tracer of a provider. To ask the SDK for it costs more than a span that is not recorded.

    Only OpenTelemetry's own SDK has a generator of ids. With another one, attempts have no links.
    """
    tracer: Any = provider.get_tracer("relier", __version__)
    generator = getattr(tracer, "id_generator", None)
    if generator is not None and not isinstance(generator, AttemptIds):
        tracer.id_generator = AttemptIds(generator)
    return cast(Tracer, tracer)


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
