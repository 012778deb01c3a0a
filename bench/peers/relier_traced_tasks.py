"""The tasks and the client of Relier, with tracing on and every trace sampled out."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from bench.peers.relier_native_tasks import TASKS, many, one, opened
from relier.otel import use_tracing

__all__ = ["TASKS", "many", "one", "opened"]

trace.set_tracer_provider(TracerProvider(sampler=ALWAYS_OFF))
use_tracing()
