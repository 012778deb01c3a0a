"""The HTTP server of a process, the reports to systemd, and how a supervisor merges its children's pages."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from relier.errors import ConfigurationError
from relier.monitoring.asking import fetch, fetch_health
from relier.monitoring.endpoint import Endpoint, HttpPage
from relier.monitoring.health import Health, probe_answer
from relier.monitoring.merging import labelled, merged
from relier.monitoring.meter import Meter
from relier.monitoring.monitor import MonitoringAddress, start_monitor
from relier.monitoring.systemd import SystemdNotifier, notifier_for
from tests.support.servers import free_port

LOOPBACK = "127.0.0.1"
READY = Health("worker", True)
Serve = Callable[[dict[str, Callable[[], HttpPage]]], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    opened: list[Endpoint] = []

    def start(pages: dict[str, Callable[[], HttpPage]]) -> int:
        port = free_port()
        opened.append(Endpoint(pages, LOOPBACK, port))
        opened[-1].start()
        return port

    yield start
    for endpoint in opened:
        endpoint.close()


@pytest.mark.parametrize(
    ("health", "live", "ready", "started"),
    [
        (READY, True, True, True),
        (Health("worker", False), True, False, False),
        (Health("worker", True, ("stuck",)), False, False, True),
        (Health("worker", True, (), ("draining",)), True, False, True),
    ],
)
def test_each_probe_answers_its_own_question(health: Health, live: bool, ready: bool, started: bool) -> None:
    answers = {probe: probe_answer(probe, health)[0] == 200 for probe in ("/livez", "/readyz", "/startupz")}
    assert answers == {"/livez": live, "/readyz": ready, "/startupz": started}
    assert (health.live, health.ready) == (live, ready)


def test_each_path_has_its_page(serve: Serve) -> None:
    def fail() -> HttpPage:
        raise ValueError("no numbers today")

    port = serve({"/a": lambda: HttpPage(200, b"one\n"), "/b": fail})
    assert fetch(LOOPBACK, port, "/a?x=1", 5) == (200, b"one\n")
    assert fetch(LOOPBACK, port, "/", 5) == (404, b"not found; there are /a, /b\n")
    assert fetch(LOOPBACK, port, "/b", 5) == (500, b"ValueError: no numbers today\n")


def test_a_client_that_sends_nothing_delays_nobody(serve: Serve) -> None:
    port = serve({"/a": lambda: HttpPage(200, b"one\n")})
    with socket.create_connection((LOOPBACK, port)):
        assert fetch(LOOPBACK, port, "/a", 5) == (200, b"one\n")


def test_a_taken_port_is_a_configuration_error(serve: Serve) -> None:
    port = serve({})
    with pytest.raises(ConfigurationError, match=f"metrics cannot be served on port {port}: Address already in use"):
        Endpoint({}, LOOPBACK, port)
    with pytest.raises(ConfigurationError, match="metrics cannot be served on port 70000"):
        Endpoint({}, LOOPBACK, 70_000)


def test_a_forked_process_does_not_keep_the_port(serve: Serve) -> None:
    """A pool process that outlives its parent must not keep the port from the parent's successor."""
    port = free_port()
    endpoint = Endpoint({}, LOOPBACK, port)
    endpoint.start()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        endpoint.close()
        Endpoint({}, LOOPBACK, port).server_close()
    finally:
        os.close(writing)
        os.waitpid(child, 0)
        os.close(reading)


def test_health_is_transferred_completely(serve: Serve) -> None:
    told = Health("relay", True, ("a",), ("b", "c"))
    with closing(start_monitor(MonitoringAddress(port=(port := free_port())), lambda: told)):
        assert fetch_health(LOOPBACK, port, 5) == told
        assert fetch(LOOPBACK, port, "/metrics", 5)[0] == 404
    port = serve({"/healthz": lambda: HttpPage(200, b"<html>")})
    with pytest.raises(ConnectionError, match="not with a health page"):
        fetch_health(LOOPBACK, port, 5)


def test_without_prometheus_client_there_are_probes_and_no_metrics(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    meter = Meter()
    with closing(start_monitor(MonitoringAddress(port=(port := free_port())), lambda: READY, meter)):
        assert fetch(LOOPBACK, port, "/livez", 5)[0] == 200
        assert fetch(LOOPBACK, port, "/metrics", 5)[0] == 404
    assert "/metrics is not served: for metrics, " in caplog.text
    with pytest.raises(ConfigurationError, match="for metrics, "):
        meter.text()


def test_a_server_that_does_not_speak_http_is_no_process_of_ours() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"-ERR unknown command\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(ConnectionError, match="not with HTTP"):
            fetch(LOOPBACK, server.getsockname()[1], "/livez", 5)


# --- systemd -----------------------------------------------------------------------------------------------------


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(10)
        yield listening


def test_systemd_learns_that_a_process_is_ready_and_live(systemd: socket.socket, tmp_path: Path) -> None:
    now = [Health("worker", False)]
    notifier = SystemdNotifier(str(tmp_path / "notify"), lambda: now[0], watchdog=0.02)
    notifier.start()
    assert systemd.recv(1024) == b"WATCHDOG=1"
    assert systemd.recv(1024) == b"STATUS=starting"
    now[0] = READY
    while (said := systemd.recv(1024)) == b"WATCHDOG=1":
        pass
    assert said == b"READY=1"
    now[0] = Health("worker", True, ("the event loop has not run for 11 s",))
    while (said := systemd.recv(1024)) != b"STATUS=the event loop has not run for 11 s":
        assert said in (b"WATCHDOG=1", b"STATUS=ready")
    notifier.end()
    assert systemd.recv(1024) == b"STOPPING=1", "a process that is stuck sends no WATCHDOG=1"


def test_without_systemd_nothing_is_sent() -> None:
    assert notifier_for(lambda: READY, {}) is None
    assert notifier_for(lambda: READY, {"NOTIFY_SOCKET": "vsock:1"}) is None
    assert notifier_for(lambda: READY, {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_PID": "1", "WATCHDOG_USEC": "5"})


# --- one page for several processes -----------------------------------------------------------------------------


def test_samples_get_the_number_of_their_process() -> None:
    assert labelled("rl_running 3.0", "1") == 'rl_running{process="1"} 3.0'
    assert labelled('rl_tasks{task="a b"} 3.0', "2") == 'rl_tasks{process="2",task="a b"} 3.0'
    assert labelled("rl_x{} 1", "2") == 'rl_x{process="2"} 1'


def test_a_family_is_described_once() -> None:
    page = b'# HELP rl_a A.\n# TYPE rl_a gauge\nrl_a 1.0\n# HELP rl_b B.\n# TYPE rl_b gauge\nrl_b{q="x"} 2.0\n'
    assert merged({"1": page, "2": page}).decode().splitlines() == [
        "# HELP rl_a A.",
        "# TYPE rl_a gauge",
        'rl_a{process="1"} 1.0',
        'rl_a{process="2"} 1.0',
        "# HELP rl_b B.",
        "# TYPE rl_b gauge",
        'rl_b{process="1",q="x"} 2.0',
        'rl_b{process="2",q="x"} 2.0',
    ]
    assert merged({}) == b""
