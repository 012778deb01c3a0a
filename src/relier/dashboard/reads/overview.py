"""The first page: what needs attention, how many tasks there are, how fast and how well they end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from relier.cli.doctor import ledger_checks, server_checks
from relier.cli.doctor.check_result import CheckResult
from relier.cli.node_view import WorkerView, node_statuses
from relier.cli.pipelined.limits import limits_reading
from relier.cli.pipelined.stats import stats_reading
from relier.cli.pipelined.steps import Reading, TriedRead, raw
from relier.cli.task_list import ORDER
from relier.dashboard.query import Query
from relier.dashboard.reads.attention import entries, figure_checks, figures
from relier.dashboard.reads.outbox import tables_of
from relier.dashboard.session import DashboardSession
from relier.errors import RelierError
from relier.ledger import keys
from relier.ledger.stats import QueueStats, Stats

SERVER_CHECKS_S = 30.0  # how old the checks of the server may be
MOST_LIMITS = 20
MOST_OLDEST = 10


def overview(session: DashboardSession, query: Query) -> dict[str, Any]:  # noqa: ARG001 - the form of a read
    stats, outcomes, limits, checked = session.read(
        stats_reading(session.ledger, exact=_oldest),
        session.outcomes.reading(session.ledger),
        limits_reading(session.ledger, MOST_LIMITS),
        _store_reading(session),
    )
    workers = WorkerView(stats, session.settings.heartbeat_ttl)
    tables = tables_of(node_statuses(stats, session.settings.heartbeat_ttl))
    session.counts.add(stats.now_ms, stats.counts)
    found = figures(outcomes)
    checks = [*figure_checks(stats, workers, outcomes, limits, tables), *_judged(checked, stats)]
    return {
        "now_ms": stats.now_ms,
        **_counts(stats, workers),
        "rates": session.counts.rates(stats.now_ms, stats.counts),
        **found,
        "bars": found["bars"] or session.counts.bars(),
        "attention": entries(checks),
        "complete": found["complete"],
        "all_read": not stats.cursor,
    }


def _counts(stats: Stats, workers: WorkerView) -> dict[str, Any]:
    oldest = [queue.oldest_at_ms for queue in stats.queues if queue.waiting and queue.oldest_at_ms]
    by_state = stats.by_state()
    return {
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
    }


def _oldest(found: Iterable[QueueStats]) -> list[str]:
    """Return the queues with the oldest tasks, by their order."""
    waiting = [(queue.oldest_at_ms, queue.queue) for queue in found if queue.oldest_at_ms is not None]
    return [name for _, name in sorted(waiting)[:MOST_OLDEST]]


def _store_reading(session: DashboardSession) -> Reading[dict[str, Any]]:
    """Read what the checks of the store and of the schedule need."""
    before = time.time()
    note, first, clock, info = yield [
        raw("HGET", *ledger_checks.birth_note(session.ledger)),
        raw("ZRANGE", keys.spell(session.ledger.prefix, "due"), 0, 0, "WITHSCORES"),
        raw("TIME"),
        TriedRead(raw("INFO")),
    ]
    now = time.monotonic()
    known = session.remembered("server", now + SERVER_CHECKS_S, now, session.store.probe)
    fields = {} if isinstance(info, RelierError) else server_checks.info_fields(info)
    checks = [
        *server_checks.check_server(fields, known),
        *server_checks.check_persistence(fields, known),
        *server_checks.check_memory(fields, known, session.settings),
        *server_checks.judge_clock(clock, before, time.time()),
    ]
    return {"note": note, "first": first, "checks": checks}


def _judged(checked: dict[str, Any], stats: Stats) -> Iterator[CheckResult]:
    yield from ledger_checks.judge_birth(checked["note"], stats)
    yield from ledger_checks.judge_schedule(checked["first"], stats)
    yield from checked["checks"]
