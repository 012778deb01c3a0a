"""The contract between the behaviours and an engine, and the engines there are.

An engine starts worker processes for task modules on given settings. It must register a boot in the ledger, drain on
SIGTERM, leave at once on a second SIGINT, and log to stderr. All else about it is its own affair.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from relier.settings import Settings
from tests.support import ROOT
from tests.support.servers import wait_until

# What Python says when nobody handled an error: it must not be in a worker's log, whatever was done to it.
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

    clean, forced, interrupted     exit codes of a worker whose tasks all finished, or not; and of one that Ctrl-C ended
    at_once, alone                 how many tasks it runs at once at the most, and how many with isolate=True
    holds_a_line                   whether it surely claims isolated tasks that must wait for a process; else, at times
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
        """How a worker is started: in the foreground, by one process that SIGTERM drains."""
        ...

    def environment(self, modules: Sequence[str]) -> dict[str, str]:
        """What its process must find in its environment."""
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
    """A worker that runs: one process, or a group of them that is killed and frozen as one."""

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
        """SIGTERM: drain."""
        self._tell(signal.SIGTERM)

    def interrupt(self) -> None:
        """SIGINT, as Ctrl-C: once drains, twice leaves now."""
        self._tell(signal.SIGINT)

    def kill(self) -> None:
        """kill -9, everything of it at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)

    def freeze(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def exit_code(self, seconds: float = 20.0) -> int:
        """Wait until it has left."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGABRT)  # where it hangs, or a process of its pool, is in its log then
            self._process.wait(10)
            raise AssertionError(f"the worker has not left within {seconds:g} s") from None

    def end(self) -> None:
        """Whatever state it is in."""
        if self.running:
            self.kill()

    def complaints(self) -> list[str]:
        """Lines of its log that tell of an error nobody handled."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if any(words in line for words in UNHANDLED)]

    def _tell(self, number: signal.Signals) -> None:
        """Returns when the process has taken the signal: two that wait together would count as one."""
        self._process.send_signal(number)
        wait_until(lambda: not self._pending(number), what=f"the worker takes {number.name}")

    def _pending(self, number: signal.Signals) -> bool:
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:  # it has left, or this is no Linux
            return False
        waiting = [line.split()[1] for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
        return any(int(mask, 16) >> (number - 1) & 1 for mask in waiting)


def environment_of(settings: Settings) -> dict[str, str]:
    """Settings as the environment of a process."""
    given = settings.model_dump(exclude_unset=True, exclude_none=True)
    return {f"RELIER_{name.upper()}": str(value) for name, value in given.items()}
