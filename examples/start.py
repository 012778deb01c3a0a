"""Start the processes that a Procfile lists: `python examples/start.py examples/django_shop`. Ctrl-C ends them all.

The line `release` runs first, and to its end. When the web server listens, its address is printed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

PORT = int(os.environ.get("PORT", "8321"))
LOOK_S = 0.2  # how often the processes are checked


def read_procfile(folder: Path) -> dict[str, str]:
    """Return the commands by their names."""
    lines = (folder / "Procfile").read_text().splitlines()
    return {name.strip(): command.strip() for name, _, command in (line.partition(":") for line in lines) if command}


def is_listening() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", PORT)) == 0


def watch(running: dict[str, subprocess.Popen[bytes]], stopped: Callable[[float], bool]) -> str:
    """Wait until a process has ended, and return its name; or until the shop is stopped, and return nothing."""
    announced = False
    while not stopped(LOOK_S):
        if not announced and is_listening():
            announced = True
            print(f"The shop is open: http://127.0.0.1:{PORT}", flush=True)
        for name, process in running.items():
            if process.poll() is not None:
                return name
    return ""


def main(folder: Path) -> None:
    if is_listening():
        raise SystemExit(f"port {PORT} is in use: set PORT to another one")
    commands = read_procfile(folder)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    env = os.environ | {"PATH": path, "PORT": str(PORT), "PYTHONUNBUFFERED": "1"}
    subprocess.run(commands.pop("release"), shell=True, cwd=folder, env=env, check=True)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    running = {
        name: subprocess.Popen(["/bin/sh", "-c", f"exec {command}"], cwd=folder, env=env, start_new_session=True)
        for name, command in commands.items()
    }
    ended = watch(running, stop.wait)
    for process in running.values():
        process.terminate()
    codes = {name: process.wait() for name, process in running.items()}
    if ended:
        raise SystemExit(f"{ended} ended by itself, with code {codes[ended]}; see its output above")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
