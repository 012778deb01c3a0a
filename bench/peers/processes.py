"""Processes the bench starts: each in a session of its own, so that it and all its children can be found, measured and
ended by their ids, and nobody else's."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
OTHERS = re.compile(r"celery|dramatiq|taskiq|relier", re.IGNORECASE)
PATIENCE = 10.0  # seconds for a worker to leave by itself
ALARMS = re.compile(r"Traceback|\bERROR\b|\bCRITICAL\b|is not found|unregistered task", re.IGNORECASE)


class BenchError(Exception):
    """A system did not do what was asked; its row is lost, not the run."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Of a whole session, in MB. `rss` counts a page once a process, `pss` (shared pages divided) once in all."""

    rss: float
    pss: float
    processes: int


@dataclass(frozen=True, slots=True)
class Worker:
    process: subprocess.Popen[bytes]
    log: Path

    def cpu_seconds(self) -> float:
        """Of every process of the session, those included that have ended and were waited for."""
        return sum(sum(map(int, fields[11:15])) for _, fields in session(self.process.pid)) / TICKS

    def memory(self) -> Memory:
        rss, pss, processes = 0, 0, 0
        for pid, _ in session(self.process.pid):
            with contextlib.suppress(OSError):
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                kilobytes = {line.split(":")[0]: line.split()[1] for line in rollup.splitlines()[1:]}
                rss, pss, processes = rss + int(kilobytes["Rss"]), pss + int(kilobytes["Pss"]), processes + 1
        return Memory(rss / 1024, pss / 1024, processes)

    def check(self) -> None:
        """A task that failed or was thrown away leaves the queue as fast as one that ran: then its log says so."""
        told = self.log.read_text(errors="replace")
        if self.process.poll() is not None:
            raise BenchError(f"its worker ended with {self.process.returncode}: {tail(told)}")
        if ALARMS.search(told):
            raise BenchError(f"its worker complains: {tail(told)}")


def session(leader: int) -> list[tuple[int, list[str]]]:
    """The processes of a session, each with the fields of /proc/<pid>/stat that follow the name."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{entry.name}/stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                found.append((int(entry.name), fields))
    return found


def tail(text: str, lines: int = 12) -> str:
    return "\n    " + "\n    ".join(text.strip().splitlines()[-lines:])


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what would change a system's settings."""
    kept = {name: value for name, value in os.environ.items() if not OTHERS.match(name)}
    return {**kept, "PYTHONPATH": str(ROOT), **extra}


def run(arguments: list[str], extra: Mapping[str, str], seconds: float) -> str:
    """A producer, to its end; what it printed."""
    command = [sys.executable, *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment(extra), capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"{' '.join(arguments)} did not end within {seconds:.0f} s") from None
    if done.returncode:
        raise BenchError(f"{' '.join(arguments)} ended with {done.returncode}: {tail(done.stderr)}")
    return done.stdout


@contextlib.contextmanager
def working(arguments: list[str], extra: Mapping[str, str], log: Path) -> Iterator[Worker]:
    """A worker, from its start to the end of the last process of its session."""
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment(extra),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Worker(process, log)
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Asked first; what is left of the session is killed, by id."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
    until = time.monotonic() + PATIENCE
    while left := [pid for pid, fields in session(process.pid) if fields[0] != "Z"]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise BenchError(f"processes {left} do not end")
        time.sleep(0.01)
    process.wait()
