"""Outboxes, as their relays report them. The databases themselves belong to applications, and are not read here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from relier.cli.commands.nodes import state_of
from relier.cli.node_view import NodeStatus, node_statuses
from relier.cli.pipelined.stats import stats_reading
from relier.dashboard.query import Query
from relier.dashboard.session import DashboardSession
from relier.ledger.nodes import Role

COUNTED = ("published", "failed", "dead", "deferred", "outages")


@dataclass(frozen=True, slots=True)
class OutboxTableReport:
    """One table as one relay sees it. Numbers are None if the relay has not counted yet, or its release does not."""

    relay_id: str
    alive: bool
    database: str
    table: str
    state: str
    waiting: int | None
    exact: bool
    oldest_age_ms: int | None
    dead_rows: int | None
    lag_ms: int | None
    breakers: dict[str, str]


def outbox(session: DashboardSession, query: Query) -> dict[str, Any]:  # noqa: ARG001 - the form of a read
    (stats,) = session.read(stats_reading(session.ledger, queues=()))
    relays = [one for one in node_statuses(stats, session.settings.heartbeat_ttl) if one.role == Role.RELAY]
    return {
        "now_ms": stats.now_ms,
        "relays": [_relay(one) for one in relays],
        "tables": [asdict(table) for table in tables_of(relays)],
    }


def tables_of(nodes: Iterable[NodeStatus]) -> list[OutboxTableReport]:
    """Return what relays report about their tables. The report may come from another release, so nothing is certain."""
    found = []
    for node in nodes:
        if node.role != Role.RELAY:
            continue
        given = node.report.get("outbox")
        tables = given if isinstance(given, list) else ()
        found += [_table(node, table) for table in tables if isinstance(table, dict)]
    return sorted(found, key=lambda one: (one.database, one.table, one.relay_id))


def _table(node: NodeStatus, given: dict[str, Any]) -> OutboxTableReport:
    def number(name: str) -> int | None:
        value = given.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    breakers = given.get("breakers")
    return OutboxTableReport(
        node.node_id,
        node.health == "alive",
        str(given.get("database", "")),
        str(given.get("table", "")),
        str(given.get("state", "")),
        number("waiting"),
        given.get("exact") is True,
        number("oldest_age_ms"),
        number("dead_rows"),
        number("lag_ms"),
        {str(kind): str(state) for kind, state in breakers.items()} if isinstance(breakers, dict) else {},
    )


def _relay(node: NodeStatus) -> dict[str, Any]:
    counts = {name: node.report.get(name) for name in COUNTED}
    return {
        "id": node.node_id,
        "state": state_of(node),
        "host": node.host or None,
        "pid": node.pid or None,
        "beat_ms": node.beat_ms,
        "kinds": [str(kind) for kind in node.about.get("kinds", ()) if isinstance(node.about.get("kinds"), list)],
        **{name: value if isinstance(value, int) else None for name, value in counts.items()},
    }
