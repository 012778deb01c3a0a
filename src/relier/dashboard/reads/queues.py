"""Queues: how many tasks wait, for how long, how fast they come and go, and who serves them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from relier.cli.node_view import WorkerView
from relier.cli.pipelined.stats import stats_reading
from relier.dashboard.query import Query
from relier.dashboard.session import DashboardSession
from relier.ledger.stats import QueueStats

MOST_SHOWN = 200


def queues(session: DashboardSession, query: Query) -> dict[str, Any]:
    part = query.text("q")

    def shown(found: Iterable[QueueStats]) -> list[str]:
        return [queue.queue for queue in _chosen(found, part)[:MOST_SHOWN]]

    stats, outcomes = session.read(stats_reading(session.ledger, exact=shown), session.outcomes.reading(session.ledger))
    view = WorkerView(stats, session.settings.heartbeat_ttl)
    session.depths.add(stats.now_ms, {queue.queue: queue.waiting for queue in stats.queues})
    found = _chosen(stats.queues, part)
    return {
        "now_ms": stats.now_ms,
        "q": part,
        "total": len(found),
        "queues": [
            _row(queue, view)
            | session.depths.rates(queue.queue, stats.now_ms, queue.waiting, outcomes.claim_rate(queue.queue))
            for queue in found[:MOST_SHOWN]
        ],
        "workers_known": not view.some_queues_unknown,
        "complete": not stats.cursor,
    }


def _chosen(found: Iterable[QueueStats], part: str) -> Sequence[QueueStats]:
    """Return the queues whose names have this text: paused ones first, then the fullest."""
    fitting = [queue for queue in found if part in queue.queue]
    return sorted(fitting, key=lambda queue: (not queue.paused, -queue.waiting, queue.queue))


def _row(queue: QueueStats, view: WorkerView) -> dict[str, Any]:
    return {
        "queue": queue.queue,
        "ready": queue.ready,
        "held_back": queue.held_back,
        "revived": queue.revived,
        "oldest_ms": queue.oldest_at_ms if queue.waiting else None,
        "paused": queue.paused,
        "workers": len(view.listening(queue.queue)),
        "unattended": bool(queue.waiting) and view.unattended(queue.queue),
    }
