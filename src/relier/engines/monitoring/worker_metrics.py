"""The metrics of a worker: what it counts anyway, read at each scrape."""

from __future__ import annotations

import time
from collections.abc import Mapping

from relier.engines.worker import Worker
from relier.monitoring import event_readers, series
from relier.monitoring.admission import refusals
from relier.monitoring.meter import Labels, Meter


def count_worker(meter: Meter, worker: Worker, slots: int, lease: float) -> None:
    """Add the metrics of one worker. Its parts exist once it has started."""

    def claims() -> Mapping[Labels, float]:
        return {(outcome,): n for outcome, n in worker.claims.counts.items()} if worker.ready else {}

    def beat_age() -> float:
        sent = worker.liveness.trusted_until - 0.8 * lease  # as the heartbeat thread computes it
        return max(0.0, time.monotonic() - sent) if worker.ready else 0.0

    meter.read(series.RUNNING, lambda: len(worker.running))
    meter.read(series.SLOTS, lambda: slots)
    meter.read(series.UNSETTLED, lambda: len(worker.settler.unsettled) if worker.ready else 0)
    meter.read(series.CLAIMS, claims)
    meter.read(series.CLAIMED, lambda: worker.claims.tasks if worker.ready else 0)
    meter.read(series.STALE, lambda: worker.settler.refused if worker.ready else 0)
    meter.read(series.ORPHANS, lambda: {("claim",): worker.orphans.repaired} if worker.ready else {("claim",): 0})
    meter.read(series.REFUSED, lambda: {(limit,): n for limit, n in dict(refusals).items()})
    meter.read(series.EVENT_LAG, event_readers.event_lag)
    meter.read(series.EVENTS_MISSED, lambda: {labels: float(n) for labels, n in dict(event_readers.missed).items()})
    meter.read(series.BEAT_AGE, beat_age)
