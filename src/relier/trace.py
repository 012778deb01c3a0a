"""The trace a push belongs to, as a W3C traceparent. Read from OpenTelemetry where the application uses it, and handed
on from task to task where it does not."""

from __future__ import annotations

import sys
from contextvars import ContextVar

inherited: ContextVar[str] = ContextVar("relier_trace", default="")


def current_trace() -> str:
    """The traceparent of the current span, or of the task that runs here; empty where there is none."""
    if "opentelemetry.trace" in sys.modules:  # somebody uses it: no import of our own
        span = sys.modules["opentelemetry.trace"].get_current_span().get_span_context()
        if span.is_valid:
            return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
    return inherited.get()
