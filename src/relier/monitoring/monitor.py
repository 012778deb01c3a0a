"""Start what watches a process: the HTTP server on its metrics port, and the reports to systemd."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from relier.monitoring.asking import HEALTH_PAGE, health_page
from relier.monitoring.health import PROBES, HealthSource, probe_answer
from relier.monitoring.meter import is_available
from relier.monitoring.systemd import SystemdNotifier, notifier_for
from relier.version import how_to_install

if TYPE_CHECKING:
    from relier.monitoring.endpoint import Endpoint, HttpPage

log = logging.getLogger("relier.monitoring")

METRICS_KIND = "text/plain; version=0.0.4; charset=utf-8"


class MetricsPage(Protocol):
    """Renders metrics as text: a Meter, or what merges the pages of several processes."""

    def text(self) -> bytes: ...


class MonitoringAddress(NamedTuple):
    """Where to serve: a port, 0 for none, or a socket that a supervisor has opened (its file descriptor)."""

    host: str = "127.0.0.1"
    port: int = 0
    descriptor: int | None = None


class Monitor:
    """The HTTP endpoint and the systemd reports of one process. `close` ends both."""

    def __init__(self, endpoint: Endpoint | None = None, notifier: SystemdNotifier | None = None) -> None:
        self._endpoint = endpoint
        self._notifier = notifier

    def close(self) -> None:
        if self._notifier is not None:
            self._notifier.end()
        if self._endpoint is not None:
            self._endpoint.close()


def start_monitor(address: MonitoringAddress, health: HealthSource, metrics: MetricsPage | None = None) -> Monitor:
    """Serve probes and metrics on the address, if there is one, and report to systemd, if it waits for that.

    Raise ConfigurationError if the port is taken.
    """
    endpoint = None
    if address.port or address.descriptor is not None:
        endpoint = _endpoint_on(address, health, metrics)
        endpoint.start()
    notifier = notifier_for(health) if address.descriptor is None else None  # a supervisor reports for its children
    if notifier is not None:
        notifier.start()
    return Monitor(endpoint, notifier)


def _endpoint_on(address: MonitoringAddress, health: HealthSource, metrics: MetricsPage | None) -> Endpoint:
    from relier.monitoring.endpoint import Endpoint, HttpPage

    pages: dict[str, Callable[[], HttpPage]] = {
        probe: lambda probe=probe: HttpPage(*probe_answer(probe, health()))  # type: ignore[misc]
        for probe in PROBES
    }
    pages[HEALTH_PAGE] = lambda: HttpPage(200, health_page(health()))
    if metrics is not None and not is_available():
        log.warning("/metrics is not served: for metrics, %s", how_to_install("metrics"))
    elif metrics is not None:
        pages["/metrics"] = lambda: HttpPage(200, metrics.text(), METRICS_KIND)
    if address.descriptor is None:
        return Endpoint(pages, address.host, address.port)
    listening = socket.socket(fileno=address.descriptor)
    listening.set_inheritable(False)
    return Endpoint(pages, listening=listening)
