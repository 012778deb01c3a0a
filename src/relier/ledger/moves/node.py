"""The moves of nodes: register, send heartbeats and retire, and what an operator orders a node to do."""

from __future__ import annotations

from functools import partial

from relier.errors import InvalidSubmissionError
from relier.ledger import replies
from relier.ledger.checks import check_number, check_word
from relier.ledger.moves.base import MoveBase, plain
from relier.ledger.nodes import LOG_LEVELS, Orders, Role, ordered
from relier.ledger.records import Beat
from relier.store.call import Call

NODE_ID_CHARS = 24


class NodeMoves(MoveBase):
    def register(
        self,
        node_id: str,
        lease_ms: int,
        about: str = "{}",
        role: Role = Role.WORKER,
        orders: Orders | None = None,
    ) -> Call[bool]:
        """Register a node. Returns False if it was declared lost before: start over with a new id.

        `about`: what the node reports about itself, as JSON. `orders`: those that it carries on from an earlier id.
        """
        check_word("the node id", node_id, NODE_ID_CHARS)
        check_number("lease_ms", lease_ms, 1)
        carried = "" if orders is None else orders.carried()
        return self._call("register", [node_id, lease_ms, plain(about), role.value, carried], replies.registered)

    def beat(self, node_id: str, lease_ms: int, polled: str = "", report: str = "") -> Call[Beat]:
        """Send one heartbeat, which extends the leases of all tasks of a worker. `report`: what changes about the node,
        as JSON; empty if nothing did since the last heartbeat."""
        check_number("lease_ms", lease_ms, 1)
        return self._call("beat", [node_id, lease_ms, polled, plain(report)], replies.beat)

    def retire(self, node_id: str) -> Call[int]:
        """Unregister a node. Returns how many tasks a worker still holds; above 0 it stays registered."""
        return self._call("retire", [node_id], replies.retired)

    def order(self, node_id: str, wanted: Orders) -> Call[Orders]:
        """Set the desired state of a node, which learns it with its next heartbeat. `wanted.version`: the one in
        `stats`. Returns the orders that apply now. Raises VersionConflictError if they changed since they were read."""
        check_word("the node id", node_id, NODE_ID_CHARS)
        check_number("version", wanted.version)
        if wanted.log_level and wanted.log_level not in LOG_LEVELS:
            raise InvalidSubmissionError(
                f"unknown log level {wanted.log_level!r:.40}; use one of {', '.join(LOG_LEVELS)}, or none to reset it"
            )
        return self._call("order", [node_id, wanted.version, *wanted.words()], partial(ordered, node_id))
