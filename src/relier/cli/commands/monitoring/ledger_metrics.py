"""The metrics of a namespace, read from its ledger at each scrape by the reads of the other commands.

No series has the id of a task, node or batch, or the key of a limit, as a label.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from relier.cli.commands.monitoring.event_metrics import event_rows
from relier.cli.commands.monitoring.objective_metrics import ObjectiveMetrics
from relier.cli.node_view import NodeStatus, node_statuses
from relier.cli.session import Session
from relier.errors import RelierError, StoreError
from relier.ledger import keys
from relier.ledger.batches.records import BatchState
from relier.ledger.limit_overview import read_limits
from relier.ledger.nodes import Role
from relier.ledger.pages import read_stats
from relier.ledger.schedule_records import GROUPS, ScheduleState, StoredSchedule
from relier.ledger.stats import Stats
from relier.monitoring import series
from relier.monitoring.meter import MOST_LABELS, Labels, family
from relier.monitoring.series import MetricSeries

log = logging.getLogger("relier.monitoring")

MOST_BATCHES = 1000
ALWAYS = (  # shown from 0 on, because rates need the value before the first one
    "submitted",
    "done",
    "dead",
    "cancelled",
    "retried",
    "revived",
    "refused",
    "strays",
    "emptied",
)
NOT_COUNTED = ("bytes", "full")  # fields of the counters that are no counters
Rows = Mapping[Labels, float]
COMBINED: Mapping[MetricSeries, Callable[[Iterable[float]], float]] = {  # of several shards; the others are added up
    series.QUEUE_AGE: max,
    series.QUEUE_PAUSED: max,
    series.QUEUE_UNSERVED: max,
    series.DUE_LATE: max,
    series.SCHEDULE_LATE: max,
    series.SLO_TARGET: max,
    series.SLO_BURN: max,
    series.SLO_ALERT: max,
    series.SLO_BUDGET: min,
    series.EVENT_HISTORY: min,
}


class LedgerCollector:
    """Collects the metrics of a namespace, as prometheus-client expects. Concurrent scrapes take turns.

    Creating one raises ConfigurationError if the objectives of the settings cannot be read.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._namespaces = [_NamespaceMetrics(each) for each in (session.shards if session.is_sharded else [session])]
        self._turn = threading.Lock()
        self.error = ""  # why the last scrape failed
        self.away = ""  # shards that did not answer the last scrape

    def collect(self) -> Iterator[Any]:
        with self._turn:
            try:
                rows = self._read()
                self.error = self.away
            except RelierError as error:
                if not self.error:  # once per outage, not once per scrape
                    log.warning("the ledger cannot be read: %s", error)
                self.error, rows = str(error), {series.LEDGER_UP: {(): 0.0}}
        for one, found in rows.items():
            yield family(one, dict(list(found.items())[:MOST_LABELS]))

    def _read(self) -> dict[MetricSeries, Rows]:
        if not self._session.is_sharded:
            return self._namespaces[0].read()
        found, away = [], []
        for shard, namespace in enumerate(self._namespaces):
            try:
                found.append(namespace.read())
            except StoreError as error:
                away.append(f"shard {shard}: {error}")
        if away and not self.error:
            log.warning("some shards cannot be read, the metrics are those of the others: %s", "; ".join(away))
        self.away = "; ".join(away)
        return merged_shards(found) | {series.LEDGER_UP: {(): 0.0 if away else 1.0}}


class _NamespaceMetrics:
    """Reads the metrics of one namespace, which may be a shard."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._objectives = ObjectiveMetrics(session)

    def read(self) -> dict[MetricSeries, Rows]:
        session = self._session
        stats = read_stats(session.run, session.ledger)
        nodes = node_statuses(stats, session.settings.heartbeat_ttl)
        return {
            series.LEDGER_UP: {(): 1.0},
            **_tasks(stats),
            **_queues(stats, session.settings.heartbeat_ttl),
            **_nodes(nodes),
            series.DUE_LATE: {(): self._due_late(stats.now_ms)},
            **self._limits(),
            series.BATCHES: self._batches(),
            **self._schedules(stats.now_ms),
            **event_rows(session, stats.now_ms),
            **self._objectives.rows(),
        }

    def _due_late(self, now_ms: int) -> float:
        due = keys.spell(self._session.ledger.prefix, "due")
        first: Any = self._session.store.command("ZRANGE", due, 0, 0, "WITHSCORES", retry=True)
        return max(0.0, (now_ms - float(first[1])) / 1000) if first else 0.0

    def _limits(self) -> dict[MetricSeries, Rows]:
        live, running = Counter[Labels](), Counter[Labels]()
        for limit in read_limits(self._session.run, self._session.ledger).keys.values():
            name = (limit.name or "unknown",)
            live[name] += limit.live
            running[name] += limit.running
        return {series.LIMIT_TASKS: live, series.LIMIT_RUNNING: running}

    def _batches(self) -> Rows:
        found = Counter[Labels]({(state.value,): 0 for state in BatchState})
        cursor: str | None = ""
        while cursor is not None and found.total() < MOST_BATCHES:
            page = self._session.run(self._session.ledger.batches(cursor))
            found.update((batch.state.value,) for batch in page.batches if not batch.parent)
            cursor = page.cursor
        return found

    def _schedules(self, now_ms: int) -> dict[MetricSeries, Rows]:
        every = list(self._read_schedules())
        states = Counter[Labels]({(state.value,): 0 for state in ScheduleState})
        states.update((schedule.state.value,) for schedule in every)
        late = max((now_ms - schedule.next_ms for schedule in every if schedule.next_ms is not None), default=0)
        return {series.SCHEDULES: states, series.SCHEDULE_LATE: {(): max(0, late) / 1000}}

    def _read_schedules(self) -> Iterator[StoredSchedule]:
        for group in GROUPS:
            page = self._session.run(self._session.ledger.schedules(group=group, fires=1))
            yield from page.schedules
            while page.cursor:
                page = self._session.run(self._session.ledger.schedules(group=group, cursor=page.cursor, fires=1))
                yield from page.schedules


def merged_shards(found: Sequence[Mapping[MetricSeries, Rows]]) -> dict[MetricSeries, Rows]:
    """Return the metrics of all shards as those of one namespace: sums; of ages, states and objectives the worst."""
    together: dict[MetricSeries, dict[Labels, float]] = {}
    for shard in found:
        for one, rows in shard.items():
            so_far = together.setdefault(one, {})
            for labels, value in rows.items():
                before = so_far.get(labels)
                so_far[labels] = value if before is None else COMBINED.get(one, sum)((before, value))
    return dict(together)


def _tasks(stats: Stats) -> dict[MetricSeries, Rows]:
    tasks: dict[Labels, float] = {(state.value,): float(n) for state, n in stats.by_state().items()}
    counts = dict.fromkeys(ALWAYS, 0) | dict(stats.counts)
    moves: dict[Labels, float] = {(kind,): float(n) for kind, n in counts.items() if kind not in NOT_COUNTED}
    return {
        series.LEDGER_TASKS: tasks,
        series.LEDGER_MOVES: moves,
        series.LEDGER_BYTES: {(): float(stats.counts.get("bytes", 0))},
    }


def _queues(stats: Stats, lease: float) -> dict[MetricSeries, Rows]:
    rows: dict[MetricSeries, dict[Labels, float]] = {
        one: {}
        for one in (
            series.QUEUE_READY,
            series.QUEUE_HELD,
            series.QUEUE_AGE,
            series.QUEUE_PAUSED,
            series.QUEUE_UNSERVED,
        )
    }
    for queue in stats.queues:
        label = (queue.queue,)
        age_ms = 0 if queue.oldest_at_ms is None else max(0, stats.now_ms - queue.oldest_at_ms)
        unserved = bool(queue.waiting) and stats.unattended(queue.queue, lease)
        values = (queue.ready, queue.held_back, age_ms / 1000, queue.paused, unserved)
        for one, value in zip(rows, values, strict=True):
            rows[one][label] = float(value)
    return dict(rows)


def _nodes(nodes: Sequence[NodeStatus]) -> dict[MetricSeries, Rows]:
    found = Counter[Labels]()
    for role in Role:
        found[role.value, "alive"] = 0
    for node in nodes:
        found[node.role, "drained" if node.health == "alive" and node.draining else node.health] += 1
    workers = [node for node in nodes if node.role == Role.WORKER]
    alive = [node for node in workers if node.health == "alive"]
    return {
        series.NODES: found,
        series.LOST_TASKS: {(): float(sum(node.owned for node in workers if node.health != "alive"))},
        series.CLUSTER_SLOTS: {(): float(sum(node.concurrency or 0 for node in alive))},
        series.CLUSTER_RUNNING: {(): float(sum(node.owned for node in alive))},
    }
