"""The first page: what needs attention, how many tasks there are, how fast they end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from relier.cli.doctor import ledger_checks, server_checks
from relier.cli.doctor.check_result import CheckResult, warn
from relier.cli.node_view import WorkerView
from relier.cli.output import plural
from relier.cli.task_list import ORDER
from relier.dashboard.reads.query import Query
from relier.dashboard.session import DashboardSession
from relier.ledger.stats import Stats

SERVER_CHECKS_S = 30.0  # how old the checks of the server may be
LINKS = {
    "workers": "/nodes",
    "queues": "/queues",
    "limits": "/limits",
    "dead letters": "/dead",
    "schedule": "/tasks?state=scheduled",
}


def overview(session: DashboardSession, query: Query) -> dict[str, Any]:  # noqa: ARG001 - the form of a read
    stats = session.stats()
    workers = WorkerView(stats, session.settings.heartbeat_ttl)
    session.counts.add(stats.now_ms, stats.counts)
    rates = session.counts.rates(stats.now_ms, stats.counts)
    oldest = [queue.oldest_at_ms for queue in stats.queues if queue.waiting and queue.oldest_at_ms]
    by_state = stats.by_state()
    return {
        "now_ms": stats.now_ms,
        "states": {state.value: by_state.get(state, 0) for state in ORDER},
        "queues": len(stats.queues),
        "paused": sum(queue.paused for queue in stats.queues),
        "workers": {
            "alive": len(workers.alive),
            "slots": sum(worker.concurrency or 0 for worker in workers.alive),
            "running": sum(worker.owned for worker in workers.alive),
        },
        "oldest_ms": min(oldest, default=None),
        "totals": {name: stats.counts.get(name, 0) for name in ("submitted", "done", "dead", "retried", "revived")},
        "rates": rates,
        "error_rate": _error_rate(rates),
        "bars": session.counts.bars(),
        "attention": [_entry(check) for check in _checks(session, stats, workers) if check.level != "ok"],
    }


def _error_rate(rates: dict[str, float] | None) -> float | None:
    """Return the share of ended tasks that died in the last minute, or None if none ended."""
    ended = 0.0 if rates is None else rates["done"] + rates["dead"]
    return None if rates is None or not ended else rates["dead"] / ended


def _entry(check: CheckResult) -> dict[str, str]:
    return {"level": check.level, "says": check.says, "advice": check.advice, "link": LINKS.get(check.check, "")}


def _checks(session: DashboardSession, stats: Stats, workers: WorkerView) -> Iterator[CheckResult]:
    """Yield the results of the doctor's checks, problems first."""
    now = time.monotonic()
    server = session.remembered("server", now + SERVER_CHECKS_S, now, lambda: list(_server_checks(session)))
    found = [
        *ledger_checks.check_birth(session, session.store, stats),
        *ledger_checks.check_workers(stats, workers),
        *ledger_checks.check_queues(stats, workers),
        *_check_limits(stats),
        *ledger_checks.check_schedule(session, session.store, stats),
        *ledger_checks.check_dead(stats),
        *server,
    ]
    yield from sorted(found, key=lambda check: ("bad", "warn", "ok").index(check.level))


def _check_limits(stats: Stats) -> Iterator[CheckResult]:
    if held := sum(queue.held_back for queue in stats.queues):
        yield warn(
            "limits",
            f"{plural(held, 'task is', 'tasks are')} held back by limits.",
            "If they wait for too long, raise a limit.",
        )


def _server_checks(session: DashboardSession) -> Iterator[CheckResult]:
    store, settings = session.store, session.settings
    found, info = store.probe(), server_checks.info_of(store)
    yield from server_checks.check_server(info, found)
    yield from server_checks.check_persistence(info, found)
    yield from server_checks.check_memory(info, found, settings)
    yield from server_checks.check_clock(store)
