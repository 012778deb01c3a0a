"""Wake a relay after a commit, through the ledger's store. A ring may be lost or early: polling finds the row."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from relier.errors import RelierError
from relier.ledger.ledger import Ledger
from relier.settings import Settings
from relier.store import Scripts, SyncStore
from relier.store.connect.address import target_of
from relier.store.connect.embedded import EmbeddedServer
from relier.submit.client import Client

log = logging.getLogger("relier.outbox")

WAIT_S = 1.0

_muted = threading.Event()


@contextmanager
def muted() -> Iterator[None]:
    """Do not ring inside the block. For tests that have no relay, and perhaps no store."""
    before = _muted.is_set()
    _muted.set()
    try:
        yield
    finally:
        if not before:
            _muted.clear()


class Doorbell:
    """Rings in its own thread, so that a commit never waits for the store and never fails because of it. An embedded
    store that does not run is not started.

    Rings during a ring are merged into one.
    """

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._due = threading.Event()
        self._lock = threading.Lock()
        self._pid = 0

    def ring(self) -> None:
        """Signal that there are rows. Callable from any thread, also after a fork."""
        if _muted.is_set():
            return
        if self._pid != os.getpid():
            with self._lock:
                if self._pid != os.getpid():
                    self._due = threading.Event()
                    self._pid = os.getpid()
                    threading.Thread(target=self._run, args=(self._due,), name="relier-rings", daemon=True).start()
        self._due.set()

    def _run(self, due: threading.Event) -> None:
        while due.wait():
            due.clear()
            self._ring_now()

    def _ring_now(self) -> None:
        try:
            client = self._client().shards[0]  # relays are members of the first shard
            if is_store_running(client.settings):
                client.run(client.ledger.ring_outbox())
        except RelierError as error:
            log.debug("doorbell not rung: error=%s; a relay finds the rows when it polls", error)


def is_store_running(settings: Settings) -> bool:
    """Return False for an embedded store that does not run. A call would start it, and nobody listens there."""
    target = target_of(settings)
    return target.kind != "embedded" or EmbeddedServer(target.folder).listens()


class WakeListener(threading.Thread):
    """A thread that wakes a relay. `is_listening`: rings arrive now."""

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__(name="relier-relay-wake", daemon=True)
        self._wake = wake
        self._ending = threading.Event()
        self.is_listening = False

    def end(self) -> None:
        self._ending.set()


class DoorbellListener(WakeListener):
    """Waits for the doorbell in the ledger's store. `paused`: whether rings are left to other relays for now."""

    def __init__(
        self,
        settings: Settings,
        scripts: Scripts,
        wake: Callable[[], None],
        paused: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(wake)
        self._paused = paused
        self._store = SyncStore(settings, scripts)
        self._key = Ledger(settings).outbox_bell

    def run(self) -> None:
        while not self._ending.is_set():
            if self._paused():
                self.is_listening = False
                self._ending.wait(WAIT_S / 4)
                continue
            try:
                rung = self._store.wait_for_bell([self._key], WAIT_S)
            except RelierError:
                self.is_listening = False
                self._ending.wait(WAIT_S)
                continue
            self.is_listening = True
            if rung is not None:
                self._wake()
        self._store.close()
