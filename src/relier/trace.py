"""The trace of a push: what W3C calls traceparent, tracestate and baggage.

It is read from OpenTelemetry if the application uses it, and otherwise passed on from task to task. As text, it is the
traceparent alone, or three lines if the caller also has a tracestate or baggage. `relier.otel` records spans: it sets
`spans`, which is None without it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol

FIELDS = ("traceparent", "tracestate", "baggage")
inherited: ContextVar[str] = ContextVar("relier_trace", default="")


class SpanSource(Protocol):
    """Record spans of what happens inside Relier. Middleware records those of pushes and attempts."""

    def step(self, name: str) -> AbstractContextManager[object]:
        """Return the span of a durable step."""
        ...

    def relay(self, kind: str, bodies: Sequence[bytes]) -> AbstractContextManager[object]:
        """Return the span in which a relay sends rows with these bodies."""
        ...


spans: SpanSource | None = None
_NO_SPAN = nullcontext()


def step_span(name: str) -> AbstractContextManager[object]:
    return _NO_SPAN if spans is None else spans.step(name)


def relay_span(kind: str, bodies: Sequence[bytes]) -> AbstractContextManager[object]:
    return _NO_SPAN if spans is None else spans.relay(kind, bodies)


def current_trace() -> str:
    """Return the trace of the current span or of the running task, or an empty string."""
    if "opentelemetry.trace" in sys.modules:  # only if the application imported it
        span = sys.modules["opentelemetry.trace"].get_current_span().get_span_context()
        if span.is_valid:
            parent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
            state, baggage = span.trace_state.to_header() if span.trace_state else "", _current_baggage()
            return f"{parent}\n{state}\n{baggage}" if state or baggage else parent
    return inherited.get()


def _current_baggage() -> str:
    """Return the caller's baggage as a header, or an empty string."""
    baggage = sys.modules.get("opentelemetry.baggage")
    if baggage is None or not baggage.get_all():
        return ""
    from opentelemetry.baggage.propagation import W3CBaggagePropagator

    headers: dict[str, Any] = {}
    W3CBaggagePropagator().inject(headers)
    return str(headers.get("baggage", ""))


def headers_of(trace: str) -> dict[str, str]:
    """Return the trace as W3C headers, without empty ones."""
    return {name: value for name, value in zip(FIELDS, trace.split("\n"), strict=False) if value}


def parent_of(trace: str) -> str:
    """Return the traceparent of a trace."""
    return trace.partition("\n")[0]
