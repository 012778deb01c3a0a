"""The processes of the bench: each has its own session, so that it and all its children can be found, measured and
ended by their ids, and no other process is affected."""

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
PATIENCE = 10.0  # seconds that a worker has to exit by itself
ALARMS = re.compile(r"Traceback|\bERROR\b|\bCRITICAL\b|is not found|unregistered task", re.IGNORECASE)


class BenchError(Exception):
    """A system did not do what was asked. Its row is left out, but the run continues."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a whole session, in MB. `rss` counts a shared page once per process, `pss` divides it among
    them."""

    rss: float
    pss: float
    processes: int


@dataclass(frozen=True, slots=True)
class Worker:
    process: subprocess.Popen[bytes]
    log: Path

    def cpu_seconds(self) -> float:
        """Return the CPU time of every process of the session, including those that have ended and were waited for."""
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
        """Check the log: a task that failed or was dropped leaves the queue as fast as one that ran."""
        told = self.log.read_text(errors="replace")
        if self.process.poll() is not None:
            raise BenchError(f"its worker ended with {self.process.returncode}: {tail(told)}")
        if ALARMS.search(told):
            raise BenchError(f"its worker complains: {tail(told)}")


def session(leader: int) -> list[tuple[int, list[str]]]:
    """Return the processes of a session, each with the fields of /proc/<pid>/stat after the name."""
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
    """Return our environment, without variables that would change a system's settings."""
    kept = {name: value for name, value in os.environ.items() if not OTHERS.match(name)}
    return {**kept, "PYTHONPATH": str(ROOT), **extra}


def run(arguments: list[str], extra: Mapping[str, str], seconds: float) -> str:
    """Run a producer to its end, and return what it printed."""
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
    """Run a worker, from its start to the end of the last process of its session."""
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
    """Ask the session to end, then kill what is left of it, by id."""
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
