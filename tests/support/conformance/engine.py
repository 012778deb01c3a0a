"""The contract between the tests of behaviours and an engine, and all engines.

An engine starts worker processes for task modules on given settings. It must register a worker id in the ledger,
drain on SIGTERM, end at once on a second SIGINT, and log to stderr. The contract says nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from relier.settings import DEFAULTS, Settings
from tests.support import ROOT
from tests.support.servers import wait_until

# What Python prints about unhandled errors. None of this may be in a worker's log, whatever a test does to the worker.
UNHANDLED = (
    "Task exception was never retrieved",
    "Future exception was never retrieved",
    "was never awaited",
    "Exception in callback",
    "Exception in thread",
    "Exception ignored in",
    "Fatal Python error",
    "Task was destroyed but it is pending",
)


class Engine(Protocol):
    """One way to run tasks.

    clean, forced, interrupted     exit codes: all tasks finished; some did not; ended by Ctrl-C
    at_once, alone                 the most tasks that it runs at once, and the most with isolate=True
    holds_a_line                   whether it always claims isolated tasks that must wait for a process
    share                          which behaviours it runs by default: all, the core, none (--engines: all of them)
    """

    name: str
    clean: int
    forced: int
    interrupted: int
    at_once: int
    alone: int
    holds_a_line: bool
    share: str

    def command(self, modules: Sequence[str], queues: Sequence[str], concurrency: int) -> list[str]:
        """Return the command that starts a worker in the foreground, in one process that SIGTERM drains."""
        ...

    def environment(self, modules: Sequence[str]) -> dict[str, str]:
        """Return the variables that its process needs in its environment."""
        ...


class Native:
    """`rl worker`."""

    name = "native"
    clean = 0
    forced = 3
    interrupted = 0
    at_once = 50
    alone = 4
    holds_a_line = True
    share = "all"

    def command(self, modules: Sequence[str], queues: Sequence[str], concurrency: int) -> list[str]:
        command = [sys.executable, "-m", "relier.cli", "worker", *modules]
        return [*command, "--queues", ",".join(queues), "--concurrency", str(concurrency)]

    def environment(self, modules: Sequence[str]) -> dict[str, str]:
        return {}


class Celery:
    """`celery -A tests.support.conformance.celery_app worker` with one of its pools.

    Ctrl-C ends it with Celery's own code, 1.
    """

    clean = 0
    forced = 3
    interrupted = 1

    def __init__(self, pool: str, at_once: int, alone: int, broker: str = "", options: Sequence[str] = ()) -> None:
        self.name = f"celery-{pool}{'-rabbitmq' if broker else ''}"
        self._broker = {"CONFORMANCE_BROKER": broker} if broker else {}
        self.at_once = at_once
        self.alone = alone
        self.holds_a_line = alone < at_once
        self.share = "core" if pool == "prefork" else "none"
        self._pool = pool
        self._options = options

    def command(self, modules: Sequence[str], queues: Sequence[str], concurrency: int) -> list[str]:
        command = [sys.executable, "-m", "celery", "--quiet", "-A", "tests.support.conformance.celery_app", "worker"]
        command += ["--pool", self._pool]
        command += ["--queues", ",".join(queues), "--concurrency", str(min(concurrency, self.at_once))]
        command += ["--loglevel", "INFO", "--without-mingle", "--without-gossip", "--without-heartbeat"]
        return [*command, *self._options]

    def environment(self, modules: Sequence[str]) -> dict[str, str]:
        return {"CONFORMANCE_MODULES": " ".join(modules)} | self._broker


ENGINES: tuple[Engine, ...] = (
    Native(),
    Celery("prefork", 5, 5),
    Celery("threads", 50, 4),
    Celery("solo", 1, 1),
    Celery("asyncio", 50, 4),
)


class Worker:
    """A running worker: one process, or a process group that is killed and frozen as a whole."""

    def __init__(self, command: list[str], settings: Settings, log: Path, env: Mapping[str, str]) -> None:
        self.log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | {"PYTHONFAULTHANDLER": "1"} | environment_of(settings) | dict(env),
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def says(self, words: str) -> bool:
        return words in self.log.read_text(errors="replace")

    def stop(self) -> None:
        """Send SIGTERM, so that the worker drains."""
        self._tell(signal.SIGTERM)

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does: the first one drains, the second one ends the worker at once."""
        self._tell(signal.SIGINT)

    def kill(self) -> None:
        """Kill all its processes at once, with SIGKILL."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)

    def freeze(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def exit_code(self, seconds: float = 20.0) -> int:
        """Wait until the worker has ended."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGABRT)  # the log then shows where it, or a pool process, hangs
            self._process.wait(10)
            raise AssertionError(f"the worker has not left within {seconds:g} s") from None

    def end(self) -> None:
        """End the worker, whatever state it is in."""
        if self.running:
            self.kill()

    def complaints(self) -> list[str]:
        """Return the lines of its log that report an unhandled error."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if any(words in line for words in UNHANDLED)]

    def _tell(self, number: signal.Signals) -> None:
        """Send a signal, and return when the process has received it: two pending signals would count as one."""
        self._process.send_signal(number)
        wait_until(lambda: not self._pending(number), what=f"the worker takes {number.name}")

    def _pending(self, number: signal.Signals) -> bool:
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:  # it has left, or this is no Linux
            return False
        waiting = [line.split()[1] for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
        return any(int(mask, 16) >> (number - 1) & 1 for mask in waiting)


def given_values(settings: Settings) -> dict[str, Any]:
    """Return the settings that were set explicitly, by name."""
    return {name: getattr(settings, name) for name in DEFAULTS if settings.is_given(name)}


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the settings as environment variables of a process."""
    given = given_values(settings)
    return {f"RELIER_{name.upper()}": str(value) for name, value in given.items()}
