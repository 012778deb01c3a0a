"""The health of this host's processes, as the ledger's registry knows it: for `rl health` without a port."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import click

from relier.cli.node_view import NodeStatus, node_statuses
from relier.cli.session import Session, option_value
from relier.ledger.pages import read_stats
from relier.monitoring.health import Health


def ask_registry(ctx: click.Context) -> Health | str:
    """Return the health of the processes of this host, taken together, or why it is unknown."""
    with Session(option_value(ctx, "url"), option_value(ctx, "namespace")) as session:
        stats = read_stats(session.run, session.ledger)
        every = node_statuses(stats, session.settings.heartbeat_ttl)
        return health_of([node for node in every if node.host == platform.node()], session.where)


def health_of(nodes: Sequence[NodeStatus], where: str) -> Health | str:
    """Return the health of several nodes: live if one is alive, ready if one of those takes work."""
    if not nodes:
        return f"no process of this host is registered in {where}"
    roles = ", ".join(sorted({node.role for node in nodes}))
    alive = [node for node in nodes if node.health == "alive"]
    stuck = () if alive else tuple(f"{node.node_id} sends no heartbeats" for node in nodes)
    taking = any(not node.draining for node in alive)
    unready = () if taking or not alive else tuple(f"{node.node_id} is draining" for node in alive)
    return Health(roles, bool(alive), stuck, unready)
