"""The workers: real processes of `rl worker`, which the demo starts, kills, freezes and wakes by their pid."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent
LEAVE_S = 10.0


class Member:
    """One `rl worker`. `children`: the processes of a supervised one that the ledger shows at the moment."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, supervised: bool) -> None:
        self.name = name
        self.process = process
        self.log = log
        self.supervised = supervised
        self.children: set[int] = set()
        self.frozen = False

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def last_words(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Crew:
    """All workers, dead or alive."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self.members: list[Member] = []

    def start(self, *options: str) -> Member:
        """Start `rl worker demo.tasks …`, out of reach of this terminal's Ctrl-C: only the demo ends it."""
        name = f"worker {len(self.members) + 1}"
        log = self._folder / f"{name.replace(' ', '-')}.log"
        command = [sys.executable, "-m", "relier.cli", "worker", "demo.tasks", *options]
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                cwd=EXAMPLES,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                process_group=0,
            )
        member = Member(name, process, log, "--processes" in options)
        self.members.append(member)
        return member

    def kill(self, *members: Member) -> None:
        """Kill a worker and its children with SIGKILL, the supervisor first: it would return their tasks and start
        other children."""
        for member in members:
            member.process.kill()
            for pid in member.children:
                send(pid, signal.SIGKILL)
        for member in members:
            member.process.wait()
            member.children.clear()

    def leave(self) -> dict[str, int]:
        """Send SIGTERM to all running workers, so that they finish and end. Return their exit codes. Kill those that
        take too long."""
        rest = [member for member in self.members if member.running]
        for member in rest:
            self.thaw(member)
            member.process.terminate()
        until = time.monotonic() + LEAVE_S
        for member in rest:
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.process.wait(max(0.1, until - time.monotonic()))
        codes = {member.name: member.process.poll() for member in rest}
        self.end()
        return {name: -signal.SIGKILL if code is None else code for name, code in codes.items()}

    def freeze(self, member: Member) -> None:
        member.frozen = True
        send(member.pid, signal.SIGSTOP)

    def thaw(self, member: Member) -> None:
        member.frozen = False
        send(member.pid, signal.SIGCONT)

    def end(self) -> None:
        """End all workers, so that none outlives the demo."""
        self.kill(*(member for member in self.members if member.running))


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
