"""Nodes: the processes of every role, whether they are alive, and what they were ordered to do."""

from __future__ import annotations

from typing import Any

from relier.cli.commands.nodes import CannotOrderError, check_order, state_of
from relier.cli.node_view import NodeStatus, node_statuses
from relier.cli.pipelined.stats import stats_reading
from relier.dashboard.query import Query
from relier.dashboard.session import DashboardSession

MOST_SHOWN = 200


def nodes(session: DashboardSession, query: Query) -> dict[str, Any]:
    part = query.text("q")
    (stats,) = session.read(stats_reading(session.ledger, queues=()))
    every = node_statuses(stats, session.settings.heartbeat_ttl)
    found = [node for node in every if part in node.node_id or part in node.host or part in node.role]
    found.sort(key=lambda node: (node.health == "alive", node.role, node.host, node.node_id))
    return {
        "now_ms": stats.now_ms,
        "q": part,
        "total": len(found),
        "nodes": [_row(node) for node in found[:MOST_SHOWN]],
        "complete": not stats.cursor,
    }


def _row(node: NodeStatus) -> dict[str, Any]:
    found = node.as_dict()
    return {name: found[name] for name in found if name not in ("about", "report", "boot")} | {
        "id": node.node_id,
        "state": state_of(node),
        "may": _may(node),
    }


def _may(node: NodeStatus) -> list[str]:
    """Return the orders that a node can take now."""
    try:
        check_order(node, stops=False)
    except CannotOrderError:
        return []
    return ["resume"] if node.orders.draining else ["drain"]
