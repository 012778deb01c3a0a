"""Queues: how many tasks wait, for how long, and who serves them."""

from __future__ import annotations

from typing import Any

from relier.cli.node_view import WorkerView
from relier.dashboard.reads.query import Query
from relier.dashboard.session import DashboardSession
from relier.ledger.stats import QueueStats

MOST_SHOWN = 200


def queues(session: DashboardSession, query: Query) -> dict[str, Any]:
    part = query.text("q")
    stats = session.stats()
    view = WorkerView(stats, session.settings.heartbeat_ttl)
    found = [queue for queue in stats.queues if part in queue.queue]
    found.sort(key=lambda queue: (not queue.paused, -queue.waiting, queue.queue))
    return {
        "now_ms": stats.now_ms,
        "q": part,
        "total": len(found),
        "queues": [_row(queue, view) for queue in found[:MOST_SHOWN]],
        "workers_known": not view.some_queues_unknown,
    }


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
