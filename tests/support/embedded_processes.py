"""Processes that share an embedded server, and checks of that server from outside."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


class Client:
    """A process that uses the store in a folder."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.embedded_client", f"embedded://{folder}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, line: str) -> int:
        self.tell(line)
        return int(self.hear())

    def end(self, how: signal.Signals | None = None) -> None:
        """End the process, in an orderly way or with a signal."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if how is not None and self.process.poll() is None:
            self.process.send_signal(how)
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


NewClient = Callable[[], Client]


def is_free(lock: Path) -> bool:
    """Return whether nobody holds the lock."""
    if not lock.exists():
        return True
    with lock.open("r+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def keeper_of(folder: Path) -> int:
    return int((folder / "keeper.lock").read_text())


def socket_of(folder: Path) -> str:
    return (folder / "socket").read_text().splitlines()[0]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
