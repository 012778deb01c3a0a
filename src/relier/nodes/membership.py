"""Keep a helper registered: a node with a role other than worker, such as a relay or a scheduler.

A separate thread sends heartbeats, because the helper may wait long for other servers. The helper itself
decides what to do in an outage of the ledger. The thread keeps trying until the ledger answers again.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable
from typing import Any

from relier.errors import RelierError
from relier.ledger.ledger import Ledger
from relier.ledger.nodes import Orders, Role
from relier.nodes.orders import OrderFollower
from relier.nodes.process import new_helper_id, process_about, resident_mb
from relier.settings import Settings
from relier.store import Scripts, SyncStore
from relier.store.connect.heartbeat import heartbeat_settings, retry_pause


class NodeMembership(threading.Thread):
    """Registers a helper, sends its heartbeats, and keeps the orders that come back with them.

    about        what the helper reports when it registers, in addition to host, process and version
    report       what it reports with each heartbeat, in addition to its memory
    new_id       makes an id for each registration
    after_beat   called with the store and the ledger after each heartbeat that was answered
    on_stop      called once when the node is ordered to stop, in the thread of the heartbeats
    """

    def __init__(
        self,
        settings: Settings,
        scripts: Scripts,
        role: Role,
        lease: float,
        *,
        about: Callable[[], dict[str, Any]] = dict,
        report: Callable[[], dict[str, Any]] = dict,
        new_id: Callable[[], str] | None = None,
        after_beat: Callable[[SyncStore, Ledger], None] = lambda _store, _ledger: None,
        on_stop: Callable[[], None] = lambda: None,
        log: logging.Logger | None = None,
    ) -> None:
        super().__init__(name=f"relier-{role.value}-heart", daemon=True)
        self.role = role
        self.lease = lease
        self._store = SyncStore(heartbeat_settings(settings, lease), scripts)
        self._ledger = Ledger(settings)
        self._about = about
        self._report = report
        self._new_id = new_id or (lambda: new_helper_id(role))
        self._after_beat = after_beat
        self._on_stop = on_stop
        self._log = log or logging.getLogger("relier.nodes")
        self._follower = OrderFollower(self._log_draining, self._stop)
        self._ending = threading.Event()
        self._registered = False
        self._away = False
        self.node_id = self._new_id()

    @property
    def orders(self) -> Orders:
        """The orders that an operator gave this node."""
        return self._follower.orders

    @property
    def registered(self) -> bool:
        """Whether the node is registered in the ledger, as far as it knows."""
        return self._registered

    @property
    def away(self) -> bool:
        """Whether the ledger did not answer the last heartbeat."""
        return self._away

    def begin(self) -> None:
        """Register if the ledger answers, and start the heartbeats."""
        self.turn()
        self.start()

    def run(self) -> None:
        while not self._ending.wait(retry_pause(self.lease) if self._away else self.lease / 4):
            self.turn()
        try:
            if self._registered:
                self._store.run(self._ledger.retire(self.node_id))
        except RelierError as error:
            self._log.info("%s not retired in the ledger: %s=%s error=%s", self.role, self.role, self.node_id, error)
        self._store.close()

    def end(self, within: float = math.inf) -> None:
        """Stop the heartbeats, and retire if the ledger answers soon."""
        self._ending.set()
        if self.is_alive():
            self.join(min(2 * self.lease, within))

    def turn(self) -> None:
        """Register or send a heartbeat, once."""
        try:
            self._beat()
            self._after_beat(self._store, self._ledger)
            if self._away:
                self._log.info("ledger available again: %s=%s", self.role, self.node_id)
            self._away = False
        except RelierError as error:
            if not self._away:
                self._log.warning(
                    "ledger unreachable: %s=%s error=%s; the %s retries", self.role, self.node_id, error, self.role
                )
            self._away = True

    def _beat(self) -> None:
        lease_ms = round(1000 * self.lease)
        if self._registered:
            beat = self._store.run(self._ledger.beat(self.node_id, lease_ms, report=self._report_now()))
            if beat.alive:
                self._follower.conform(beat.orders)
            else:
                self._registered = False
                self.node_id = self._new_id()
                self._log.warning("%s was declared lost: new_id=%s", self.role, self.node_id)
        if not self._registered:
            about = json.dumps({**process_about(self.role, self.role.value), **self._about()})
            call = self._ledger.register(self.node_id, lease_ms, about, self.role, self.orders)
            self._registered = self._store.run(call)

    def _report_now(self) -> str:
        return json.dumps({"rss_mb": round(resident_mb()), "draining": self.orders.draining, **self._report()})

    def _log_draining(self, draining: bool) -> None:
        what = "drained, takes nothing new" if draining else "resumed"
        self._log.warning("%s was %s: %s=%s", self.role, what, self.role, self.node_id)

    def _stop(self) -> None:
        self._log.warning("%s is stopping, ordered by an operator: %s=%s", self.role, self.role, self.node_id)
        self._on_stop()
