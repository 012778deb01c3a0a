"""Answer for all processes of a supervisor on one port.

Each child serves its own pages on a socket that the supervisor opened for it on the loopback interface. The supervisor
asks all children when it is asked itself.

live      the supervisor runs, and not every child is stuck. It deals with single stuck children itself. A child that
          does not answer is computing; the supervisor kills it when that takes too long.
ready     at least one child claims tasks
started   a child has started
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from relier.ledger.nodes import Role
from relier.monitoring import series
from relier.monitoring.asking import fetch, fetch_health
from relier.monitoring.health import OK, Health, stuck_reasons
from relier.monitoring.merging import merged
from relier.monitoring.meter import Meter
from relier.monitoring.monitor import Monitor, MonitoringAddress, start_monitor
from relier.settings import Settings

LOOPBACK = "127.0.0.1"
ASK_S = 1.0  # how long to wait for the answers of children
T = TypeVar("T")


class Answers(Generic[T]):
    """Asks several processes at the same time. `found`: the answers that came in time, by the number of the process."""

    def __init__(self, ports: dict[int, int], ask: Callable[[int], T]) -> None:
        self._found: dict[int, T] = {}
        asking = [threading.Thread(target=self._ask, args=(*one, ask), daemon=True) for one in ports.items()]
        for thread in asking:
            thread.start()
        until = time.monotonic() + 1.5 * ASK_S
        for thread in asking:
            thread.join(max(0.0, until - time.monotonic()))
        self.found = dict(self._found)

    def _ask(self, number: int, port: int, ask: Callable[[int], T]) -> None:
        try:
            self._found[number] = ask(port)
        except OSError:  # it is starting, computing, or has just ended
            return


class SupervisorMonitor:
    """The health of a supervisor and its children. `stopping`: whether it was told to stop."""

    def __init__(self, settings: Settings, stopping: Callable[[], bool]) -> None:
        self._address = MonitoringAddress(settings.metrics_host, settings.metrics_port)
        self._stopping = stopping
        self._ports: dict[int, int] = {}  # of the children, by their numbers
        self._monitor = Monitor()
        self._started = False
        self._meter = Meter()
        self._shutdowns = self._meter.counts(series.SHUTDOWNS)
        for kind in ("clean", "forced", "recycle", "died"):
            self._shutdowns.add(kind, n=0)  # rates need the value before the first one
        self._shutdown_time = self._meter.histogram(series.SHUTDOWN_TIME)
        self._meter.read(series.PROCESSES, lambda: len(self._ports))
        self.ran_at = time.monotonic()  # when the supervisor last ran; written by it
        self.watched = bool(settings.metrics_port or os.environ.get("NOTIFY_SOCKET"))

    def start(self) -> None:
        """Serve the port. Raise ConfigurationError if it is taken."""
        self._monitor = start_monitor(self._address, self.health, self)

    def close(self) -> None:
        self._monitor.close()

    def open_door(self) -> tuple[int, socket.socket | None]:
        """Return the number of the next child and the socket that it serves, if anybody may ask."""
        number = next(number for number in range(1, len(self._ports) + 2) if number not in self._ports)
        if not self.watched:
            return 0, None
        door = socket.create_server((LOOPBACK, 0))
        self._ports = self._ports | {number: door.getsockname()[1]}
        return number, door

    def child_ended(self, number: int, kind: str, took: float | None) -> None:
        """Forget a child. `took`: the seconds that its shutdown took, if it did not just die."""
        self._shutdowns.add(kind)
        if took is not None:
            self._shutdown_time.observe(took, kind)
        self._ports = {other: port for other, port in self._ports.items() if other != number}

    def health(self) -> Health:
        ports, stuck = self._ports, stuck_reasons("the supervisor", self.ran_at)
        found = Answers(ports, lambda port: fetch_health(LOOPBACK, port, ASK_S)).found
        self._started = self._started or any(child.started for child in found.values())
        if not stuck and found and len(found) == len(ports) and not any(child.live for child in found.values()):
            stuck = _reasons(found, "/livez")
        return Health(Role.WORKER.value, self._started, stuck, self._unready(ports, found))

    def text(self) -> bytes:
        """Return one page of metrics: the supervisor's own, and those of its children."""
        pages = Answers(self._ports, lambda port: fetch(LOOPBACK, port, "/metrics", ASK_S)).found
        served = {str(number): page for number, (status, page) in sorted(pages.items()) if status == OK}
        return self._meter.text() + merged(served)

    def _unready(self, ports: dict[int, int], found: dict[int, Health]) -> tuple[str, ...]:
        if self._stopping():
            return ("draining: it was told to stop",)
        if any(child.ready for child in found.values()):
            return ()
        silent = [f"process {number}: no answer" for number in sorted(ports.keys() - found.keys())]
        return (*_reasons(found, "/readyz"), *silent) if ports else ("no worker process is running",)


def _reasons(found: dict[int, Health], probe: str) -> tuple[str, ...]:
    return tuple(f"process {n}: {reason}" for n, child in sorted(found.items()) for reason in child.reasons(probe))
