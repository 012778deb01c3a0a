"""Run Relier's internal tasks in Celery's pool, without Celery's tracer.

These tasks emit no events or signals and have no results, because plain Celery does not know them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relier.celery.canvas.join import run_join
from relier.celery.canvas.parts import JOIN_TASK, PART_TASK, run_part
from relier.celery.sending.collect import Collector
from relier.celery.sending.spread import SPREAD_TASK, run_spread
from relier.celery.working.report import TracerReport
from relier.errors import ConfigurationError

INTERNAL_TASKS: dict[str, Callable[..., TracerReport]] = {
    JOIN_TASK: run_join,
    PART_TASK: run_part,
    SPREAD_TASK: run_spread,
}


def is_internal(name: str) -> bool:
    return name in INTERNAL_TASKS


def register_internal(app: Any) -> None:
    for name in INTERNAL_TASKS:
        app.task(name=name, ignore_result=True, send_events=False, rate_limit=None)(_refuse)


def run_internal(app: Any, collector: Collector, name: str, request: dict[str, Any]) -> TracerReport:
    """Run an internal task. Everything that it sends is a follow-up."""
    collector.settling = True
    return INTERNAL_TASKS[name](app, collector, request, *request["args"])


def _refuse(*_: Any) -> None:
    raise ConfigurationError(
        "Relier's internal tasks cannot be called: they run from the ledger only; call your own tasks"
    )
