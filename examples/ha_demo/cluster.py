"""A primary, two replicas and three Sentinels, as processes of the wheel's server with the files in scripts/redis."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import hiredis

from relier.store.connect.embedded import binary

from .cut import Cable

FILES = Path(__file__).parents[2] / "scripts" / "redis"
MASTER = "relier-master"
REPLICAS = 2
SENTINELS = 3
PATIENCE_S = 120.0


class ClusterError(Exception):
    """An expected event did not happen."""


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            raise ClusterError(f"{what} did not come about within {PATIENCE_S:.0f} s")
        time.sleep(0.05)


class Node:
    """One server or Sentinel. Its configuration is a file of scripts/redis with the address and the folder replaced."""

    def __init__(self, folder: Path, text: str, *options: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.port = free_port()
        self.options = options
        self._file = folder / "node.conf"
        text = re.sub(r"^port .*", f"port {self.port}", text, flags=re.MULTILINE)
        text = re.sub(r"^dir .*", f"dir {folder}", text, flags=re.MULTILINE)
        self._file.write_text(re.sub(r"^bind .*", "bind 127.0.0.1", text, flags=re.MULTILINE))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Node:
        with (self.folder / "log").open("ab") as log:
            command = [binary(), str(self._file), *self.options]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        wait_for(f"an answer of port {self.port}", self.answers)
        return self

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)
        if number is signal.SIGKILL:
            self._process.wait()

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def answers(self) -> bool:
        try:
            return self.ask("PING") in (b"PONG", "PONG")
        except OSError:
            return False

    def ask(self, *words: str) -> object:
        reader = hiredis.Reader()
        with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.sendall(hiredis.pack_command(words))
            while (reply := reader.gets()) is False:
                data = connection.recv(65536)
                if not data:
                    raise ConnectionError("closed")
                reader.feed(data)
        return reply

    def role(self) -> str:
        try:
            reply = self.ask("ROLE")
        except OSError:
            return ""
        return reply[0].decode() if isinstance(reply, list) else ""


class Cluster:
    """All nodes. Clients, replicas and Sentinels reach the primary through a cable that can be cut.

    `guarded`: with the two lines of redis.conf that are commented out, min-replicas-to-write and min-replicas-max-lag.
    """

    def __init__(self, folder: Path, *, guarded: bool = False) -> None:
        server, sentinel = ((FILES / name).read_text() for name in ("redis.conf", "sentinel.conf"))
        if guarded:
            server = re.sub("^# (min-replicas-)", r"\1", server, flags=re.MULTILINE)
        self.master = Node(folder / "master", server)
        self.cable = Cable(self.master.port)
        # If it comes back as a replica, it is reached through the cable again.
        self.master.options = ("--replica-announce-port", str(self.cable.port))
        at = ("--replicaof", "127.0.0.1", str(self.cable.port))
        self.replicas = [Node(folder / f"replica-{n + 1}", server, *at) for n in range(REPLICAS)]
        watched = sentinel.replace("relier-redis-master 6379", f"127.0.0.1 {self.cable.port}")
        self.sentinels = [Node(folder / f"sentinel-{n + 1}", watched, "--sentinel") for n in range(SENTINELS)]

    @property
    def url(self) -> str:
        return f"sentinel://{','.join(f'127.0.0.1:{one.port}' for one in self.sentinels)}/{MASTER}"

    def start(self) -> None:
        for node in (self.master, *self.replicas, *self.sentinels):
            node.start()
        wait_for("three Sentinels that know each other and the replicas", self._complete)

    def end(self) -> None:
        for node in (*self.sentinels, *self.replicas, self.master):
            node.end()
        self.cable.close()

    def _complete(self) -> bool:
        known = [self._known(sentinel) for sentinel in self.sentinels]
        return all(
            (one.get("num-slaves"), one.get("num-other-sentinels")) == (str(REPLICAS), str(SENTINELS - 1))
            for one in known
        )

    def _known(self, sentinel: Node) -> dict[str, str]:
        reply = sentinel.ask("SENTINEL", "MASTER", MASTER)
        words = [word.decode() for word in reply] if isinstance(reply, list) else []
        return dict(zip(words[::2], words[1::2], strict=True))

    def promoted(self) -> Node | None:
        """Return the replica that has become the primary, once two Sentinels say so."""
        ports = [self._known(sentinel).get("port") for sentinel in self.sentinels]
        for replica in self.replicas:
            if ports.count(str(replica.port)) >= 2 and replica.role() == "master":
                return replica
        return None

    def rejoined(self) -> bool:
        """Return whether the old primary follows the new one, and both replicas of the new one are online."""
        new = self.promoted()
        if new is None or self.master.role() != "slave":
            return False
        info = new.ask("INFO", "replication")
        return isinstance(info, bytes) and info.count(b"state=online") == REPLICAS


def free_port() -> int:
    """Return a free port below those that the system gives to connections, which could take it before the server
    does."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
