"""Processes that inherit an ignored signal, as with `rl worker &` in a script."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, Member, wait_until
from tests.support.jobs import common as jobs

IGNORING = """
import os, signal, sys
signal.signal(int(sys.argv[1]), signal.SIG_IGN)
os.execv(sys.argv[2], sys.argv[2:])
"""
COMMANDS = {
    "worker": ("worker", "tests.support.jobs.common"),
    "supervisor": ("worker", "tests.support.jobs.common", "--processes", "1"),
    "dev": ("dev", "tests.support.jobs.common"),
    "resurrector": ("resurrector",),
}
every = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


def start(fleet: Fleet, ignored: signal.Signals, *command: str) -> Member:

    member = fleet.python("-c", IGNORING, str(int(ignored)), sys.executable, "-m", "relier.cli", *command)
    member.wait_said("resurrector started" if "resurrector" in command else " started: queues=")
    return member


def ignores(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigIgn")]
    return bool(int(mask, 16) >> (number - 1) & 1)


@every
def test_an_ignored_sigint_stays_ignored(patient: Fleet, command: tuple[str, ...]) -> None:
    """Ctrl-C in the terminal of the script is meant for other processes; SIGTERM is not."""
    member = start(patient, signal.SIGINT, *command)
    pids = list(member.session())
    assert all(ignores(pid, signal.SIGINT) for pid in pids)
    for pid in pids:
        member.signal(signal.SIGINT, pid)
    if "resurrector" not in command:
        assert jobs.echo.push("on").result(20) == "on"
    assert set(pids) <= set(member.session())
    assert member.terminate(30) == 0


@every
def test_an_inherited_ignored_sigterm_still_stops_the_process(patient: Fleet, command: tuple[str, ...]) -> None:
    member = start(patient, signal.SIGTERM, *command)
    assert not any(ignores(pid, signal.SIGTERM) for pid in member.session())
    assert member.terminate(30) == 0


@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_an_isolated_process_obeys_only_its_worker(patient: Fleet, ignored: signal.Signals) -> None:
    member = start(patient, ignored, "worker", "tests.support.jobs.common")
    receipt = jobs.hold_isolated.push("go")
    patient.wait_diary("begin", 1)
    (pid,) = member.children()
    for number in (signal.SIGINT, signal.SIGTERM):
        member.signal(number, pid)
    patient.open_gate("go")
    assert receipt.result(20) == 1
    assert member.terminate(30) == 0


def test_a_worker_without_a_terminal_obeys_both_signals(patient: Fleet) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        member = patient.worker()
        assert not ignores(member.pid, number)
        member.signal(number)
        wait_until(lambda member=member: member.process.poll() is not None, what="the worker leaves")
        assert member.process.returncode == 0
