"""Nodes: the processes that are registered in a namespace, what they report, and what they are ordered to do.

A node has one role. Workers own tasks; all other roles are helpers. Orders are a desired state, not commands: the
answer to each heartbeat repeats them, and the node conforms.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Literal

import msgspec

from relier.errors import IllegalMoveError, VersionConflictError

Health = Literal["alive", "silent", "lost"]
OWN_LEVEL = "-"  # of orders: the log level that the node has by its own settings
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class Role(StrEnum):
    """The role of a node. Only a worker claims and owns tasks."""

    WORKER = "worker"
    RELAY = "relay"
    SCHEDULER = "scheduler"
    RESURRECTOR = "resurrector"
    DASHBOARD = "dashboard"


class Orders(msgspec.Struct, frozen=True):
    """The desired state of a node.

    draining   take no new work, finish the work in progress, stay alive
    stopping   shut down, as SIGTERM does
    log_level  of the `relier` loggers; empty: the node's own setting

    `version` is 0 if the node was never given orders.
    """

    version: int = 0
    draining: bool = False
    stopping: bool = False
    log_level: str = ""

    def words(self) -> tuple[str, str, str]:
        """Return the state as `order` and `register` send it."""
        return "1" if self.draining else "0", "1" if self.stopping else "0", self.log_level or OWN_LEVEL

    def carried(self) -> str:
        """Return the orders that a node keeps when it registers under a new id, or "" if there are none."""
        kept = msgspec.structs.replace(self, stopping=False)
        return " ".join(kept.words()) if kept.draining or kept.log_level else ""


def read_orders(text: str) -> Orders | None:
    """Read orders as the store keeps them; None for empty text."""
    if not text:
        return None
    version, draining, stopping, level = text.split(" ")
    return Orders(int(version), draining == "1", stopping == "1", "" if level == OWN_LEVEL else level)


def ordered(node_id: str, raw: Any) -> Orders:
    """Read the answer to `order`: the orders that apply now. Raises if the new orders were refused."""
    verdict, orders = raw[0].decode(), read_orders(raw[1].decode()) or Orders()
    if verdict == "conflict":
        raise VersionConflictError(
            f"the orders of node {node_id} were not changed: another operator changed them since they were read (now "
            f"version {orders.version}); read them again"
        )
    if verdict == "gone":
        raise IllegalMoveError(
            f"node {node_id} cannot be given orders: it has stopped, or was declared lost; `rl nodes` lists the nodes"
        )
    return orders


class NodeStats(msgspec.Struct, frozen=True):
    """One node in the answer to `stats`. `about`: what it reported when it registered; `report`: with its last
    heartbeat; both JSON."""

    node_id: str
    lease_left_ms: int
    owned: int
    about: str
    beat_ms: int
    polled: str
    registered_ms: int
    stored_role: str = ""
    report: str = ""
    stored_orders: str = ""

    @property
    def role(self) -> str:
        """The node's role. Nodes of a release without roles are workers, except relays, which report their engine."""
        if self.stored_role:
            return self.stored_role
        return Role.RELAY if self.reported().get("engine") == Role.RELAY else Role.WORKER

    @property
    def orders(self) -> Orders:
        return read_orders(self.stored_orders) or Orders()

    def reported(self) -> dict[str, Any]:
        """Return what the node reported about itself when it registered; empty if that cannot be read."""
        return _read_object(self.about)

    def reported_now(self) -> dict[str, Any]:
        """Return what the node reported with its last heartbeat; empty if it reported nothing."""
        return _read_object(self.report)

    def queues(self) -> tuple[str, ...] | None:
        """Return the queues that the worker serves, or None if it did not report them."""
        queues = self.reported().get("queues")
        return tuple(map(str, queues)) if isinstance(queues, list) else None

    def health(self, now_ms: int, lease_seconds: float) -> Health:
        """Return whether the node is alive, silent or lost.

        Leases are measured on the ledger clocks, which stand still while no node advances them. If all nodes died
        together, their leases never seem to run out, and only the time since the last heartbeat shows that they are
        dead. So a node counts as silent once that time exceeds four times the lease it seems to have left. The
        settings of this process alone do not decide, because a node may have a longer lease.
        """
        if self.lease_left_ms <= 0:
            return "lost"
        quiet_ms = now_ms - self.beat_ms
        return "silent" if quiet_ms > max(2000 * lease_seconds, 4 * self.lease_left_ms) else "alive"


def _read_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
