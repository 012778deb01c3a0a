"""A relay's membership in the cluster. The relay sends heartbeats to the ledger, so that other relays know within
seconds when it dies, and claim its rows. Relays of another ledger, or without one, send no heartbeats to this ledger.
Whether they are alive is judged only by their leases in the shared table and the stale timeout."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from relier.errors import RelierError
from relier.ledger.keys import spell
from relier.ledger.ledger import Ledger
from relier.ledger.stats import WorkerStats
from relier.outbox.table.statements import KINDS, LiveRelays
from relier.settings import Settings
from relier.store import Scripts, SyncStore
from relier.store.connect.address import target_of
from relier.store.connect.embedded import folder_of
from relier.store.connect.heartbeat import heartbeat_settings, retry_pause

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

    def members(self) -> LiveRelays | None: ...

    def begin(self) -> None: ...

    def end(self, within: float = ...) -> None: ...


class Membership(threading.Thread):
    """Sends heartbeats and reads which relays are alive, in its own thread: a relay may wait long for its target."""

    def __init__(self, settings: Settings, scripts: Scripts, about: Callable[[], dict[str, object]]) -> None:
        super().__init__(name="relier-relay-heart", daemon=True)
        self._lease = min(LEASE_S, settings.heartbeat_ttl)
        self._store = SyncStore(heartbeat_settings(settings, self._lease), scripts)
        self._ledger = Ledger(settings)
        self._about = about
        self._ending = threading.Event()
        self._registered = False
        self._away = False
        self._live: frozenset[str] = frozenset()
        self._seen_at = 0.0
        self._tag = tag_of(settings)
        self.relay_id = new_relay(self._tag)

    def begin(self) -> None:
        """Register if the ledger answers, and start the heartbeats."""
        self._turn()
        self.start()

    def run(self) -> None:
        while not self._ending.wait(retry_pause(self._lease) if self._away else self._lease / 4):
            self._turn()
        try:
            if self._registered:
                self._store.run(self._ledger.retire(self.relay_id))
        except RelierError as error:
            log.info("relay not retired in the ledger: relay=%s error=%s", self.relay_id, error)
        self._store.close()

    def end(self, within: float = math.inf) -> None:
        """Stop the heartbeats, and retire if the ledger answers soon."""
        self._ending.set()
        if self.is_alive():
            self.join(min(2 * self._lease, within))

    def members(self) -> LiveRelays | None:
        """Return the live relays; None if they are unknown, or if this relay is not among them."""
        age = time.monotonic() - self._seen_at
        if not self._seen_at or age > self._lease or self.relay_id not in self._live:
            return None
        return LiveRelays(self._live, round(1000 * age) + 1, f"{ENGINE}.%.{self._tag}%")

    def _turn(self) -> None:
        try:
            self._beat()
            seen_at = time.monotonic()  # relays that register after this may be missing
            ends = self._lease_ends()
            now_ms = ends.get(self.relay_id, 0) - round(1000 * self._lease)  # the ledger's time of the heartbeat
            self._live = frozenset(one for one, end in ends.items() if end > now_ms and is_relay(one))
            self._seen_at = seen_at
            if self._away:
                log.info("ledger available again: relay=%s", self.relay_id)
            self._away = False
        except RelierError as error:
            if not self._away:
                log.warning("ledger away: relay=%s error=%s; the relay retries", self.relay_id, error)
            self._away = True

    def _beat(self) -> None:
        lease_ms = round(1000 * self._lease)
        if self._registered and not self._store.run(self._ledger.beat(self.relay_id, lease_ms)).alive:
            self._registered = False
            self.relay_id = new_relay(self._tag)
            log.warning("relay was declared lost: new_id=%s", self.relay_id)
        if not self._registered:
            about = json.dumps({"engine": ENGINE, **self._about()})
            self._registered = self._store.run(self._ledger.register(self.relay_id, lease_ms, about))

    def _lease_ends(self) -> dict[str, int]:
        """Return when the lease of each worker and relay ends. This is one cheap read, however many queues and tasks
        there are."""
        flat = self._store.command("ZRANGE", spell(self._ledger.prefix, "boots"), 0, -1, "WITHSCORES", retry=True)
        return {worker_id.decode(): int(float(end)) for worker_id, end in zip(flat[::2], flat[1::2], strict=True)}


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
        return socket.gethostname(), Path("/etc/machine-id").read_text()
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


def living_relays(workers: Iterable[WorkerStats]) -> list[LivingRelay]:
    """Return the live relays among the processes that the ledger knows."""
    return [_living(one) for one in workers if is_relay(one.worker_id) and one.lease_left_ms > 0]


def _living(one: WorkerStats) -> LivingRelay:
    try:
        about = json.loads(one.about)
    except ValueError:
        about = {}
    tables, kinds = (frozenset(about[name]) if name in about else None for name in ("tables", "kinds"))
    return LivingRelay(one.worker_id, tables, kinds)


def is_relay(worker_id: str) -> bool:
    return worker_id.startswith(f"{ENGINE}.")
