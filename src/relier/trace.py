"""The trace of a push, as a W3C traceparent.

It is read from OpenTelemetry if the application uses it, and otherwise passed on from task to task.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar

inherited: ContextVar[str] = ContextVar("relier_trace", default="")


def current_trace() -> str:
    """Return the traceparent of the current span or of the running task, or an empty string."""
    if "opentelemetry.trace" in sys.modules:  # only if the application imported it
        span = sys.modules["opentelemetry.trace"].get_current_span().get_span_context()
        if span.is_valid:
            return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
    return inherited.get()
