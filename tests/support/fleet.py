"""Real workers on a real server, which tests start, kill and freeze.

A worker is `python -m relier.cli worker …` in its own session, so that it and all its children can be found and ended
by their ids, and no other process is affected. Tasks keep a diary (`jobs/common.py`) in the fleet's folder and wait
there for gates to open, so that no test has to guess how long something takes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from relier.cli.audit import audit
from relier.ledger.ledger import Ledger
from relier.ledger.pages import read_stats
from relier.ledger.records import Task
from relier.ledger.stats import Stats
from relier.settings import Settings
from relier.states import ENDED, State
from relier.store import SyncStore
from relier.submit.client import Client, use_client
from tests.support import PYTHONPATH

FOLDER = "FLEET_FOLDER"
LEASE_S = 1.0  # of a fleet that is to lose workers often

# What Python prints about unhandled errors. None of this may be in a log, whatever a test does to the process.
UNHANDLED = (
    "exception was never retrieved",
    "Exception in thread",
    "Exception ignored in",
    "was never awaited",
    "Exception in callback",
    "Task was destroyed but it is pending",
)


def wait_until(predicate: Callable[[], Any], seconds: float = 20.0, what: str = "the condition") -> Any:
    """Poll until a condition outside this process holds."""
    pause = threading.Event()
    until = time.monotonic() + seconds
    while not (value := predicate()):
        if time.monotonic() > until:
            raise AssertionError(f"{what} did not come about within {seconds} s")
        pause.wait(0.01)
    return value


class Line(NamedTuple):
    """One line of the diary. `at` is CLOCK_MONOTONIC, which all processes of a machine share."""

    what: str
    task_id: str
    attempt: int
    pid: int
    at: float


@dataclass(frozen=True, slots=True)
class Member:
    """One started command and all processes below it."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_said(self, text: str, times: int = 1, seconds: float = 20.0) -> str:
        """Wait until the log contains the text `times` times. Return the log."""
        try:
            wait_until(lambda: self.said().count(text) >= times, seconds, f"{text!r} in the log")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.said()[-4000:]}") from None
        return self.said()

    def boots(self) -> list[str]:
        """Return the worker ids that it has used so far, in order."""
        return re.findall(r"worker (\S+) started: queues=", self.said())

    def started(self) -> list[int]:
        """Return the process ids of the children that its supervisor has started so far, in order."""
        return [int(pid) for pid in re.findall(r"worker process pid=(\d+) started", self.said())]

    def session(self) -> dict[int, list[str]]:
        """Return pid -> the fields of /proc/<pid>/stat after the name, for every process of its session."""
        found: dict[int, list[str]] = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    fields = Path(f"/proc/{entry.name}/stat").read_text().rpartition(")")[2].split()
                    if int(fields[3]) == self.pid and fields[0] != "Z":
                        found[int(entry.name)] = fields
        return found

    def children(self, of: int | None = None) -> list[int]:
        return sorted(pid for pid, fields in self.session().items() if int(fields[1]) == (of or self.pid))

    def signal(self, number: signal.Signals, pid: int | None = None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid or self.pid, number)

    def kill_all(self) -> None:
        """Kill the command and all processes below it with SIGKILL."""
        while pids := list(self.session()):
            for pid in pids:
                self.signal(signal.SIGKILL, pid)
        self.process.wait(10)

    def terminate(self, seconds: float = 60.0) -> int:
        """Send SIGTERM, and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds: float = 60.0) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not leave within {seconds} s:\n{self.said()[-4000:]}") from None


class Fleet:
    """The workers of one namespace, and the test's own client for it."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.settings = settings
        self.folder = folder
        self.members: list[Member] = []
        self._numbers = itertools.count()
        self._client = Client(settings)
        use_client(self._client)
        self._client.open()

    @property
    def client(self) -> Client:
        return self._client

    @property
    def store(self) -> SyncStore:
        return self._client.sync_store

    @property
    def ledger(self) -> Ledger:
        return self._client.ledger

    # --- who works -----------------------------------------------------------------------------------------------

    def start(self, *arguments: str, cwd: Path | None = None, **env: str) -> Member:
        """Start `rl <arguments>` without waiting for it. `env`: further environment variables."""
        return self.python("-m", "relier.cli", *arguments, cwd=cwd, **env)

    def python(self, *arguments: str, cwd: Path | None = None, **env: str) -> Member:
        """Start any other Python program that uses the fleet's namespace, such as a producer."""
        log = self.folder / f"log{next(self._numbers)}"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=cwd or self.folder,
                env=self._environment(env),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        member = Member(process, log)
        self.members.append(member)
        return member

    def worker(self, *arguments: str, modules: Iterable[str] = ("tests.support.jobs.common",), **env: str) -> Member:
        """Start a worker, and wait until all its processes have registered."""
        member = self.start("worker", *modules, *arguments, **env)
        processes = int(arguments[arguments.index("--processes") + 1]) if "--processes" in arguments else 1
        member.wait_said(" started: queues=", processes)
        return member

    def _environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RELIER_")}
        ours = {
            "RELIER_REDIS_URL": self.settings.redis_url,
            "RELIER_NAMESPACE": self.settings.namespace,
            "RELIER_HEARTBEAT_TTL": str(self.settings.heartbeat_ttl),
            "PYTHONPATH": PYTHONPATH,
            FOLDER: str(self.folder),
        }
        return kept | ours | dict(extra)

    def close(self) -> None:
        for member in self.members:
            member.kill_all()
        use_client(None)
        self._client.close()

    # --- what tasks did ------------------------------------------------------------------------------------------

    def open_gate(self, name: str) -> None:
        (self.folder / f"gate-{name}").touch()

    def diary(self, what: str = "") -> list[Line]:
        file = self.folder / "diary"
        lines = file.read_text().splitlines() if file.exists() else []
        told = [Line(w, i, int(a), int(p), float(t)) for w, i, a, p, t in map(str.split, lines)]
        return [line for line in told if not what or line.what == what]

    def wait_diary(self, what: str, times: int, seconds: float = 20.0) -> list[Line]:
        """Wait until the diary has `times` matching lines."""
        try:
            wait_until(lambda: len(self.diary(what)) >= times, seconds, f"{times} × {what!r} in the diary")
        except AssertionError as error:
            logs = "\n".join(member.said()[-2000:] for member in self.members)
            raise AssertionError(f"{error}; there are {len(self.diary(what))}:\n{logs}") from None
        return self.diary(what)

    # --- what the ledger says ------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        return read_stats(self.store.run, self.ledger)

    def get(self, task_id: str) -> Task:
        return self.store.run(self.ledger.get(task_id))

    def now(self) -> float:
        """Return the store's TIME (s)."""
        return self.stats().now_ms / 1000

    def let_pass(self, seconds: float) -> None:
        """Wait until the store's clock has advanced by this much, to check that something does not happen in that
        time."""
        until = self.now() + seconds
        wait_until(lambda: self.now() >= until, 3 * seconds + 10, "time itself")

    def wait_ended(self, ids: Iterable[str], seconds: float = 30.0) -> list[Task]:
        """Wait until all tasks have ended. Return them, in order."""
        left = list(ids)
        tasks: dict[str, Task] = {}

        def all_ended() -> bool:
            for task_id in left:
                if task_id not in tasks:
                    task = self.get(task_id)
                    if task.record.state not in ENDED:
                        return False
                    tasks[task_id] = task
            return True

        try:
            wait_until(all_ended, seconds, "the end of all tasks")
        except AssertionError as error:
            open_ = {i: str(self.get(i).record.state) for i in left if self.get(i).record.state not in ENDED}
            logs = "\n".join(member.said()[-3000:] for member in self.members)
            raise AssertionError(f"{error}: {len(open_)} of {len(left)} are open: {str(open_)[:500]}\n{logs}") from None
        return [tasks[task_id] for task_id in left]

    def wait_done(self, ids: Iterable[str], seconds: float = 30.0) -> list[Task]:
        """Wait until all tasks have ended, and check that all are done."""
        tasks = self.wait_ended(ids, seconds)
        wrong = [(task.record.id, task.record.state, task.record.reason) for task in tasks]
        wrong = [each for each in wrong if each[1] is not State.DONE]
        assert not wrong, f"{len(wrong)} of {len(tasks)} are not done: {wrong[:5]}"
        return tasks

    def check(self) -> None:
        """Check the ledger: nothing is lost and nothing leaks. Check the logs: no process met an unexpected error."""
        report = audit(self.store, self.ledger)
        assert report.ok, [finding.problem for finding in report.findings]
        for member in self.members:
            told = member.said()
            assert not (found := [text for text in UNHANDLED if text in told]), f"{found} in a log:\n{told[-4000:]}"
