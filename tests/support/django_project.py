"""A Django project in a folder of its own, with real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE_S = 40.0

MANAGE = """
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""


class DjangoProject:
    """A Django project in a folder of its own. Its manage.py is in `site/`, and commands run one folder above."""

    def __init__(self, folder: Path, files: dict[str, str]) -> None:
        self.folder, self.site = folder, folder / "site"
        files = {"manage.py": MANAGE, "empty/__init__.py": ""} | files
        for name, text in files.items():
            (self.site / name).parent.mkdir(parents=True, exist_ok=True)
            (self.site / name).write_text(text)
        (folder / "pyproject.toml").touch()  # the embedded store lives with the project
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RELIER_", "DJANGO_"))}
        self.environment = kept | {"PYTHONUNBUFFERED": "1"}
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, "site/manage.py", *words]
            began = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
        self._running.append(began)
        self.wait_for(" started: ")
        return began

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def wait_for(self, said: str, count: int = 1) -> None:
        until = time.monotonic() + PATIENCE_S
        while self.log.count(said) < count:
            assert time.monotonic() < until, self.log
            time.sleep(0.05)

    def run(self, *words: str) -> str:
        """Run a script of the project, and return what it prints."""
        return self.feed("", *words)

    def feed(self, code: str, *words: str) -> str:
        """Run a script of the project that reads `code`, and return what it prints."""
        environment = self.environment | {"DJANGO_SETTINGS_MODULE": "shop.settings"}
        command = [sys.executable, *words]
        return subprocess.check_output(command, cwd=self.folder, env=environment, text=True, timeout=60, input=code)

    def end(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
                process.wait()
