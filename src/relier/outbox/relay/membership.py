"""A relay's membership in the cluster. The relay sends heartbeats to the ledger, so that other relays know within
seconds when it dies, and claim its rows. Relays of another ledger, or without one, send no heartbeats to this ledger.
Whether they are alive is judged only by their leases in the shared table and the stale timeout."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from relier.ledger.keys import spell
from relier.ledger.ledger import Ledger
from relier.ledger.nodes import NodeStats, Role
from relier.nodes.membership import NodeMembership
from relier.outbox.table.statements import KINDS, LiveRelays
from relier.settings import Settings
from relier.store import Scripts, SyncStore
from relier.store.connect.address import target_of
from relier.store.connect.embedded import folder_of

log = logging.getLogger("relier.outbox")

LEASE_S = 3.0
ENGINE = "relay"
RELAY_ID_CHARS = 24
TAG_CHARS = 5
LOOPBACK = ("localhost", "127.", "::1")


class RelayMembership(Protocol):
    """A relay's membership in the cluster: its own `Membership`, or the one of its process."""

    @property
    def relay_id(self) -> str: ...

    @property
    def is_draining(self) -> bool: ...

    def members(self) -> LiveRelays | None: ...

    def begin(self) -> None: ...

    def end(self, within: float = ...) -> None: ...


class Membership:
    """Keeps a relay registered, and reads which relays are alive after each heartbeat.

    `about`: the tables and kinds of rows that the relay claims. `report`: what it counts. `on_stop`: see
    NodeMembership.
    """

    def __init__(
        self,
        settings: Settings,
        scripts: Scripts,
        about: Callable[[], dict[str, Any]],
        report: Callable[[], dict[str, Any]] = dict,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._tag = tag_of(settings)
        self._live: frozenset[str] = frozenset()
        self._seen_at = 0.0
        self._node = NodeMembership(
            settings,
            scripts,
            Role.RELAY,
            min(LEASE_S, settings.heartbeat_ttl),
            about=about,
            report=lambda: self._report(),
            new_id=lambda: new_relay(self._tag),
            after_beat=self._see_relays,
            on_stop=lambda: self.on_stop(),
            log=log,
        )
        self._report = report
        self.on_stop = on_stop

    @property
    def relay_id(self) -> str:
        return self._node.node_id

    @property
    def is_draining(self) -> bool:
        """Whether an operator ordered the relay to claim no more rows."""
        return self._node.orders.draining

    def begin(self) -> None:
        """Register if the ledger answers, and start the heartbeats."""
        self._node.begin()

    def end(self, within: float = math.inf) -> None:
        """Stop the heartbeats, and retire if the ledger answers soon."""
        self._node.end(within)

    def members(self) -> LiveRelays | None:
        """Return the live relays; None if they are unknown, or if this relay is not among them."""
        age = time.monotonic() - self._seen_at
        if not self._seen_at or age > self._node.lease or self.relay_id not in self._live:
            return None
        return LiveRelays(self._live, round(1000 * age) + 1, f"{ENGINE}.%.{self._tag}%")

    def _turn(self) -> None:
        self._node.turn()

    def _see_relays(self, store: SyncStore, ledger: Ledger) -> None:
        """Read which relays are alive: two cheap reads, however many queues and tasks there are.

        Relays of a release without roles have no entry on the helpers' clock. They are judged by the ledger clock.
        """
        seen_at = time.monotonic()  # relays that register after this may be missing
        lease_ms = round(1000 * self._node.lease)
        ends, older = _lease_ends(store, ledger, "helpers"), _lease_ends(store, ledger, "boots")
        now_ms, older_now_ms = (found.get(self.relay_id, 0) - lease_ms for found in (ends, older))
        live = {one for one, end in ends.items() if end > now_ms}
        live |= {one for one, end in older.items() if one not in ends and end > older_now_ms}
        self._live = frozenset(filter(is_relay, live))
        self._seen_at = seen_at


def _lease_ends(store: SyncStore, ledger: Ledger, key: str) -> dict[str, int]:
    """Return when the lease of each node ends, on one of the ledger's clocks."""
    flat = store.command("ZRANGE", spell(ledger.prefix, key), 0, -1, "WITHSCORES", retry=True)
    return {node_id.decode(): int(float(end)) for node_id, end in zip(flat[::2], flat[1::2], strict=True)}


def new_relay(tag: str = "alone") -> str:
    """Return a new relay id. It shows that it is a relay, its process, and the ledger of its heartbeats."""
    place = f"{ENGINE}.{os.getpid()}.{tag}"
    return place + secrets.token_hex(12)[: RELAY_ID_CHARS - len(place)]


def tag_of(settings: Settings) -> str:
    """Return a tag that is equal for all relays of one ledger: the same URL, prefix and namespace. An embedded server,
    a socket or a server on loopback is a different ledger on each machine."""
    target = target_of(settings)
    local = not target.nodes or any(node.path or node.host.startswith(LOOPBACK) for node in target.nodes)
    place = [settings.key_prefix, settings.namespace, target.redacted_url, *(_machine() if local else ())]
    if target.kind == "embedded":
        place.append(str(folder_of(target.folder)))
    return hashlib.sha256(" ".join(place).encode()).hexdigest()[:TAG_CHARS]


def _machine() -> tuple[str, str]:
    try:
        return socket.gethostname(), Path("/etc/machine-id").read_text(encoding="ascii")
    except OSError:
        return socket.gethostname(), ""


@dataclass(frozen=True, slots=True)
class LivingRelay:
    """A relay that is registered in the ledger. `tables`, `kinds`: the tables and kinds of rows that the relay claims;
    None if its release does not report them."""

    relay_id: str
    tables: frozenset[str] | None
    kinds: frozenset[str] | None

    def takes(self, table: str) -> frozenset[str]:
        """Return the kinds of rows that the relay claims from a table."""
        if self.kinds is None:
            return frozenset(KINDS)
        return self.kinds if self.tables is None or table in self.tables else frozenset()


def living_relays(nodes: Iterable[NodeStats]) -> list[LivingRelay]:
    """Return the live relays among the nodes that the ledger knows."""
    return [_living(node) for node in nodes if node.role == Role.RELAY and node.lease_left_ms > 0]


def _living(node: NodeStats) -> LivingRelay:
    about = node.reported()
    tables, kinds = (frozenset(about[name]) if name in about else None for name in ("tables", "kinds"))
    return LivingRelay(node.node_id, tables, kinds)


def is_relay(worker_id: str) -> bool:
    return worker_id.startswith(f"{ENGINE}.")
