"""The probes of real workers: the store is unreachable, the loop is blocked, the worker drains or is drained."""

from __future__ import annotations

import signal
import socket
import struct
from pathlib import Path

import pytest

from tests.engines.conftest import NewFleet
from tests.support.fleet import Fleet
from tests.support.jobs import common as jobs
from tests.support.probing import ask, reasons, wait_for
from tests.support.servers import Boot, free_port


def test_a_worker_that_works_passes_every_probe(fleet: Fleet) -> None:
    port = free_port()
    member = fleet.worker("--metrics-port", str(port))
    for probe in ("/livez", "/readyz", "/startupz"):
        wait_for(port, probe)
        assert ask(port, probe) == (200, {"probe": probe[1:], "ok": True, "role": "worker", "reasons": []})
    assert jobs.echo.push(5).result(20) == 5
    assert member.terminate() == 0


def test_a_worker_without_a_port_serves_none(fleet: Fleet) -> None:
    port = free_port()
    fleet.worker("--metrics-host", "127.0.0.1")
    assert reasons(port) is None


def test_an_outage_of_the_store_is_no_reason_to_restart(boot: Boot, fleets: NewFleet) -> None:
    server = boot()
    one = fleets(1, on=server)
    port = free_port()
    one.worker(RELIER_METRICS_PORT=str(port))
    wait_for(port, "/readyz")
    server.stop()
    wait_for(port, "/readyz", "the store does not answer")
    assert reasons(port, "/livez") == reasons(port, "/startupz") == []
    server.start()
    wait_for(port, "/readyz")


def test_a_worker_that_waits_for_the_store_has_not_started(boot: Boot, fleets: NewFleet) -> None:
    server = boot()
    one = fleets(1, on=server)
    server.stop()
    port = free_port()
    one.start("worker", "tests.support.jobs.common", "--metrics-port", str(port), RELIER_REDIS_DEADLINE="0.5")
    wait_for(port, "/startupz", "starting")
    assert reasons(port, "/livez") == []
    assert reasons(port) == ["starting"]
    server.start()
    for probe in ("/startupz", "/readyz"):
        wait_for(port, probe)


@pytest.mark.parametrize("how", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_a_blocked_loop_is_not_live(fleet: Fleet, how: tuple[str, ...]) -> None:
    port = free_port()
    fleet.worker(*how, "--metrics-port", str(port))
    task_id = jobs.block.push("go").id
    fleet.wait_diary("begin", 1)
    wait_for(port, "/livez", "the event loop has not run for 1")
    assert any("the event loop has not run" in reason for reason in reasons(port) or [])
    fleet.open_gate("go")
    wait_for(port, "/livez")
    wait_for(port, "/readyz")
    fleet.wait_done([task_id])


@pytest.mark.parametrize("how", [(), ("--processes", "2")], ids=["alone", "supervised"])
def test_a_draining_worker_is_live_but_not_ready(fleet: Fleet, how: tuple[str, ...]) -> None:
    port = free_port()
    member = fleet.worker(*how, "--metrics-port", str(port))
    task_id = jobs.hold.push("go").id
    fleet.wait_diary("begin", 1)
    wait_for(port, "/readyz")
    member.signal(signal.SIGTERM)
    wait_for(port, "/readyz", "draining: it was told to stop")
    assert reasons(port, "/livez") == []
    fleet.open_gate("go")
    assert member.wait() == 0
    fleet.wait_done([task_id])


def test_a_worker_drained_by_an_operator_is_not_ready(fleet: Fleet) -> None:
    port = free_port()
    member = fleet.worker("--metrics-port", str(port))
    (worker_id,) = member.boots()
    fleet.start("nodes", "drain", worker_id).wait()
    wait_for(port, "/readyz", "claims are suspended by an operator")
    fleet.start("nodes", "resume", worker_id).wait()
    wait_for(port, "/readyz")


def test_a_supervisor_answers_for_all_its_processes(fleet: Fleet) -> None:
    port = free_port()
    member = fleet.worker("--processes", "2", "--metrics-port", str(port))
    wait_for(port, "/readyz")
    first, second = member.started()
    member.signal(signal.SIGSTOP, first)  # one process that does not answer is no reason to restart the other
    assert reasons(port, "/livez") == []
    assert reasons(port) == []
    member.signal(signal.SIGSTOP, second)
    assert reasons(port) == ["process 1: no answer", "process 2: no answer"]
    for pid in (first, second):
        member.signal(signal.SIGCONT, pid)
    wait_for(port, "/readyz")
    assert member.terminate() == 0


def test_a_worker_that_starts_again_keeps_its_port(fleet: Fleet) -> None:
    port = free_port()
    member = fleet.worker("--metrics-port", str(port), "--max-tasks", "1")
    assert jobs.echo.push(1).result(20) == 1
    member.wait_said(" started: queues=", 2)
    wait_for(port, "/readyz")
    assert jobs.echo.push(2).result(20) == 2


@pytest.mark.parametrize("how", [(), ("--processes", "2")], ids=["alone", "supervised"])
def test_a_taken_port_is_reported(fleet: Fleet, how: tuple[str, ...]) -> None:
    port = free_port()
    fleet.worker("--metrics-port", str(port))
    second = fleet.start("worker", "tests.support.jobs.common", *how, "--metrics-port", str(port))
    assert second.wait() == 2
    assert f"metrics cannot be served on port {port}: Address already in use; free the port" in second.said()


@pytest.mark.parametrize("role", ["resurrector", "scheduler"])
def test_a_helper_reports_its_health(boot: Boot, fleets: NewFleet, role: str) -> None:
    server = boot()
    one = fleets(1, on=server)
    port = free_port()
    member = one.start(role, "--metrics-port", str(port))
    wait_for(port, "/readyz")
    assert ask(port, "/livez")[1]["role"] == role
    server.stop()
    wait_for(port, "/readyz", "the store does not answer")
    assert reasons(port, "/livez") == []
    server.start()
    wait_for(port, "/readyz")
    assert member.terminate() == 0


@pytest.mark.parametrize("how", [(), ("--processes", "2")], ids=["alone", "supervised"])
def test_systemd_is_told_by_the_process_that_it_started(fleet: Fleet, tmp_path: Path, how: tuple[str, ...]) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        systemd.settimeout(20)
        member = fleet.worker(*how, NOTIFY_SOCKET=address, WATCHDOG_USEC="500000")
        said: dict[bytes, set[int]] = {}
        while not {b"READY=1", b"WATCHDOG=1", b"STATUS=ready"} <= said.keys():
            message, (credentials, *_), _, _ = systemd.recvmsg(1024, socket.CMSG_SPACE(12))
            said.setdefault(message, set()).add(struct.unpack("3i", credentials[2])[0])
        assert set().union(*said.values()) == {member.pid}, "processes of a supervisor leave it to the supervisor"
        member.signal(signal.SIGTERM)
        while systemd.recv(1024) != b"STOPPING=1":
            pass
        assert member.wait() == 0
