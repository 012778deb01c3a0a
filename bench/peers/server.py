"""The only Redis of a run: on a free port, in its own folder, AOF everysec."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from relier.store.connect import embedded


def binary() -> str:
    """Return the system's server, which is what most people run, else the one that comes with Relier."""
    return shutil.which("redis-server") or embedded.binary()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[str, Any]]:
    """Start the server. Yield its URL, and a client for the bench's own reads."""
    port = free_port()
    options = {
        "port": str(port),
        "bind": "127.0.0.1",
        "dir": str(folder),
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "auto-aof-rewrite-percentage": "0",  # a rewrite would affect one system's round and not the other's
        "logfile": str(folder / "redis.log"),
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    process = subprocess.Popen([binary(), *arguments], stdin=subprocess.DEVNULL, start_new_session=True)
    client = redis.Redis(port=port)
    try:
        wait_until_up(client, folder / "redis.log")
        yield f"redis://127.0.0.1:{port}/0", client
    finally:
        client.close()
        process.terminate()
        process.wait()


def wait_until_up(client: Any, log: Path) -> None:
    until = time.monotonic() + 10
    while True:
        try:
            client.ping()
        except redis.ConnectionError:
            if time.monotonic() > until:
                raise SystemExit(f"Redis did not start: {log.read_text()}") from None
            time.sleep(0.02)
        else:
            return


@dataclass(frozen=True, slots=True)
class Spent:
    """What the server had spent at one moment."""

    cpu_us: float
    """Of the process, reading and writing sockets and the AOF included."""
    commands: dict[str, tuple[int, int]]
    """Calls and µs per command."""


def spent(client: Any) -> Spent:
    pipe = client.pipeline(transaction=False)
    pipe.info("commandstats")
    pipe.info("cpu")
    stats, cpu = pipe.execute()
    commands = {name.removeprefix("cmdstat_"): (int(line["calls"]), int(line["usec"])) for name, line in stats.items()}
    return Spent(1e6 * (float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])), commands)
