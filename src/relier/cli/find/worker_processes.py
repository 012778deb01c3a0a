"""Find the process of a worker on this host, and tell it to stop.

A worker registers its host and its process id. A process id is used only if its process has existed since before the
worker registered: a later process got the number of one that is gone.
"""

from __future__ import annotations

import os
import platform
import signal
from pathlib import Path

from relier.cli.worker_view import WorkerStatus
from relier.engines.supervisor import REPORT_FD

SLACK_MS = 60_000  # clocks of the store and of this host may differ


class CannotDrainError(Exception):
    """Why a worker cannot be told to stop from here."""


def process_of(worker: WorkerStatus) -> int:
    """Return the worker's process id. Raise CannotDrainError if it runs elsewhere, or a supervisor would restart it."""
    if worker.health != "alive":
        raise CannotDrainError(f"it is {worker.health}; a sweep returns its tasks")
    if not worker.host or not worker.pid.isdigit():
        raise CannotDrainError("it did not report its host and process; stop it where it runs")
    if worker.host != platform.node():
        raise CannotDrainError(f"it runs on host {worker.host}, and this is {platform.node()}; run this command there")
    pid = int(worker.pid)
    started_ms = start_time_ms(pid)
    if not _exists(pid) or (started_ms is not None and started_ms > worker.registered_ms + SLACK_MS):
        raise CannotDrainError(f"there is no process {pid} of it here; it may run in a container of the same name")
    parent = supervisor_of(pid)
    if parent:
        raise CannotDrainError(
            f"its supervisor, process {parent}, would start it again; stop all its workers with `kill {parent}`"
        )
    return pid


def stop_process(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError as error:
        raise CannotDrainError(f"process {pid} has just ended") from error
    except PermissionError as error:
        raise CannotDrainError(f"you may not signal process {pid}; run this command as its user") from error


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def start_time_ms(pid: int) -> int | None:
    """Return when a process started, or None where the system does not say (no /proc)."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        booted = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        return 1000 * int(booted.split()[1]) + 1000 * int(after_name[19]) // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def supervisor_of(pid: int) -> int:
    """Return the process id of the supervisor that started a worker, or 0 if it has none."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if not any(entry.startswith(f"{REPORT_FD}=".encode()) for entry in environment):
            return 0
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
