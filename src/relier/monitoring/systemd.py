"""Report to systemd: `Type=notify` and `WatchdogSec=` of a service.

    READY=1      once the process has started
    WATCHDOG=1   while it is live, twice per WATCHDOG_USEC; systemd restarts a service that stops sending this
    STATUS=…     whether it is ready, and if not, why
    STOPPING=1   when it ends

NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are systemd's own variables. Without the first, nothing is started.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Mapping

from relier.monitoring.health import HealthSource

CHECK_S = 1.0


def notifier_for(health: HealthSource, environment: Mapping[str, str] = os.environ) -> SystemdNotifier | None:
    """Return a notifier if systemd started this process and expects reports from it, otherwise None."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return None
    watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    usec = environment.get("WATCHDOG_USEC", "")
    seconds = int(usec) / 1e6 if watched and usec.isdecimal() else 0.0
    return SystemdNotifier(address, health, seconds)


class SystemdNotifier(threading.Thread):
    """Sends reports until `end` is called. `watchdog`: the time limit between two of them (s); 0: there is none."""

    def __init__(self, address: str, health: HealthSource, watchdog: float) -> None:
        super().__init__(name="relier-systemd", daemon=True)
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._health = health
        self._watched = watchdog > 0
        self._every = min(CHECK_S, watchdog / 2) if self._watched else CHECK_S
        self._ending = threading.Event()
        self._status = ""
        self._ready = False

    def run(self) -> None:
        while True:
            self._report()
            if self._ending.wait(self._every):
                self._send("STOPPING=1")
                return

    def end(self) -> None:
        self._ending.set()
        self.join(1.0)

    def _report(self) -> None:
        health = self._health()
        if health.started and not self._ready:
            self._ready = True
            self._send("READY=1")
        if self._watched and health.live:
            self._send("WATCHDOG=1")
        status = "; ".join(health.reasons("/readyz")) or "ready"
        if status != self._status:
            self._status = status
            self._send(f"STATUS={status}")

    def _send(self, message: str) -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(message.encode(), self._address)
