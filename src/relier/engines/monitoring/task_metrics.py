"""Count the events of tasks. This is the only place: TaskEvents passes every event here, whatever the engine."""

from __future__ import annotations

from collections.abc import Iterable

from relier.engines.task_events import FinishedTask
from relier.monitoring import series
from relier.monitoring.meter import Meter

OUTCOMES = ("succeeded", "dead", "cancelled")
EXHAUSTED = ("max_resurrections_exceeded", "workers_kept_dying")  # reasons that a sweep gives


class TaskMetrics:
    """Counts events by task and queue."""

    def __init__(self, meter: Meter) -> None:
        self._ended = meter.counts(series.TASKS)
        self._ran = meter.histogram(series.RUN_TIME)
        self._waited = meter.histogram(series.QUEUE_TIME)
        self._retried = meter.counts(series.RETRIES)
        self._died = meter.counts(series.DEATHS)
        self._revived = meter.counts(series.REVIVED)
        self._exhausted = meter.counts(series.EXHAUSTED)

    def started(self, task: str, queue: str, waited_s: float) -> None:
        self._waited.observe(waited_s, task, queue)

    def succeeded(self, finished: Iterable[FinishedTask]) -> None:
        observe, n, labels = self._ran.observe, 0, ("", "")
        for claimed, run_s in finished:
            record = claimed.record
            if labels != (record.name, record.queue):  # most tasks that end together are of one kind
                if n:
                    self._ended.add(*labels, "succeeded", n=n)
                labels, n = (record.name, record.queue), 0
            n += 1
            if run_s is not None:
                observe(run_s, *labels)
        if n:
            self._ended.add(*labels, "succeeded", n=n)

    def __call__(
        self, kind: str, task: str, queue: str, run_s: float | None, waited_s: float | None, reason: str
    ) -> None:
        if kind in OUTCOMES:
            self._ended.add(task, queue, kind)
        if waited_s is not None:
            self._waited.observe(waited_s, task, queue)
        if run_s is not None:
            self._ran.observe(run_s, task, queue)
        if kind == "retried":
            self._retried.add(task, queue, reason)
        elif kind == "revived":
            self._revived.add(task, queue)
        elif kind == "dead":
            self._died.add(task, queue, reason)
            if reason in EXHAUSTED:
                self._exhausted.add(task, queue)
