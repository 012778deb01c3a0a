"""The same app twice on one server: with plain Celery, and with Relier installed. Each side has a real worker and a
driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import PYTHONPATH
from tests.support.fleet import Member
from tests.support.servers import Server, wait_until

READY = " ready."


class Side:
    """One of the two apps, running. `databases`: those of the broker, the backend and the notes."""

    def __init__(self, server: Server, folder: Path, databases: tuple[int, int, int], **env: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.members: list[Member] = []
        self.driver: subprocess.Popen[str] | None = None
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RELIER_")}
        names = ("PARITY_BROKER", "PARITY_BACKEND", "PARITY_NOTES")
        urls = {name: f"{server.tcp_url}/{number}" for name, number in zip(names, databases, strict=True)}
        ours = {"PYTHONPATH": PYTHONPATH, "C_FORCE_ROOT": "1", "PYTHONWARNINGS": "ignore"}
        self.env = kept | ours | urls | env

    def start(self, *command: str, **env: str) -> Member:
        log = self.folder / f"log{len(self.members)}"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=self.folder,
                env=self.env | env,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.members.append(Member(process, log))
        return self.members[-1]

    def worker(self, *arguments: str, module: str = "tests.support.parity_app", **env: str) -> Member:
        """Start a worker without waiting for it."""
        options = ("-E", "--without-gossip", "--without-mingle", "-l", "INFO", "-Q", "celery,side")
        return self.start("celery", "-A", module, "worker", "-c", "2", *options, *arguments, **env)

    def drive(self) -> None:
        with (self.folder / "driver").open("wb") as log:
            self.driver = subprocess.Popen(
                [sys.executable, "-m", "tests.support.parity_driver"],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def ask(self, **question: Any) -> None:
        assert self.driver is not None
        assert self.driver.stdin is not None
        self.driver.stdin.write(json.dumps(question) + "\n")
        self.driver.stdin.flush()

    def hear(self) -> Any:
        assert self.driver is not None
        assert self.driver.stdout is not None
        line = self.driver.stdout.readline()
        assert line, f"the driver ended:\n{(self.folder / 'driver').read_text()[-3000:]}"
        return json.loads(line)

    def close(self) -> None:
        if self.driver is not None:
            assert self.driver.stdin is not None
            assert self.driver.stdout is not None
            self.driver.stdin.close()
            self.driver.send_signal(signal.SIGKILL)
            self.driver.wait(10)
            self.driver.stdout.close()
        for member in self.members:
            member.kill_all()


def adopting(server: Server, namespace: str) -> dict[str, str]:
    """Return the environment that makes a side adopt its tasks."""
    return {"PARITY_ADOPT": "1", "RELIER_REDIS_URL": f"{server.tcp_url}/0", "RELIER_NAMESPACE": namespace}


@pytest.fixture(scope="session")
def sides(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Start the plain and the adopted side, each with a prefork worker of two processes and a driver."""
    folder = tmp_path_factory.mktemp("parity")
    plain = Side(server, folder / "plain", (1, 2, 3))
    adopted = Side(server, folder / "adopted", (4, 5, 6), **adopting(server, "parity"))
    both = (plain, adopted)
    try:
        for side in both:
            side.worker()
            side.drive()
        for side in both:
            side.members[0].wait_said(READY, seconds=60)
            assert side.hear() == {"ready": True}
        yield both
    finally:
        for side in both:
            side.close()


__all__ = ["READY", "Side", "adopting", "wait_until"]
