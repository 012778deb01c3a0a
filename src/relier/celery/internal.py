"""Tasks of ours among Celery's: they run in its pool, but not by its tracer. They have no events, no signals and no
results, for plain Celery would not have had the task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relier.celery.canvas.join import run_join
from relier.celery.canvas.parts import JOIN_TASK, PART_TASK, run_part
from relier.celery.sending.collect import Collector
from relier.celery.sending.spread import SPREAD_TASK, run_spread
from relier.celery.working.report import TracerReport
from relier.errors import ConfigurationError

RUNS: dict[str, Callable[..., TracerReport]] = {JOIN_TASK: run_join, PART_TASK: run_part, SPREAD_TASK: run_spread}


def is_internal(name: str) -> bool:
    return name in RUNS


def register_internal(app: Any) -> None:
    for name in RUNS:
        app.task(name=name, ignore_result=True, send_events=False, rate_limit=None)(_refuse)


def run_internal(app: Any, collector: Collector, name: str, request: dict[str, Any]) -> TracerReport:
    """Everything it sends follows from it."""
    collector.settling = True
    return RUNS[name](app, collector, request, *request["args"])


def _refuse(*_: Any) -> None:
    raise ConfigurationError("tasks of Relier's own run from the ledger only; nobody sends them")
