"""The health of this host's processes, as the ledger's registry knows it: for `rl health` without a port."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import click

from relier.cli.node_view import NodeStatus, node_statuses
from relier.cli.session import Session, session_of
from relier.errors import StoreError
from relier.ledger.pages import read_stats
from relier.monitoring.health import Health


def ask_registry(ctx: click.Context) -> Health | str:
    """Return the health of the processes of this host, taken together, or why it is unknown."""
    with session_of(ctx) as session:
        if not session.is_sharded:
            return health_of(nodes_here(session), session.where)
        found: list[NodeStatus] = []
        away: list[StoreError] = []
        for shard in session.shards:
            try:
                found += nodes_here(shard)
            except StoreError as error:
                away.append(error)
        if len(away) == session.settings.shards:
            raise away[0]
        return health_of(found, session.where)


def nodes_here(session: Session) -> list[NodeStatus]:
    """Return the processes of this host that are registered in one namespace."""
    every = node_statuses(read_stats(session.run, session.ledger), session.settings.heartbeat_ttl)
    return [node for node in every if node.host == platform.node()]


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
