"""Record how late a task began, in the same way for every system: one line appended to one file.

This is a file and not Redis, because the store is part of what is measured. An append of one short line is atomic, so
processes and threads need no lock, and it costs some microseconds after the time was taken.
"""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

from bench.peers import LATENESS_VARIABLE


def note(sent: float) -> None:
    late = time.time() - sent
    os.write(_file(), b"%.7f\n" % late)


@cache
def _file() -> int:
    return os.open(os.environ[LATENESS_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def read(path: Path) -> list[float]:
    return sorted(float(line) for line in path.read_text().split()) if path.exists() else []
