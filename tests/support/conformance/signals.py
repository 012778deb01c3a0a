"""Communication between a test and the tasks it pushed: notes in a folder that both know. Files need no connection, so
they also work while the store is down, in isolated processes, and right before a process dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

LOOK_S = 0.01


def note(folder: str | Path, name: str, text: object = "") -> None:
    """Append a line. Lines of several processes never mix, because each is one write to the end of the file."""
    file = os.open(Path(folder) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, f"{text}\n".encode())
    finally:
        os.close(file)


def notes(folder: str | Path, name: str) -> list[str]:
    """Return the lines so far, in order."""
    with contextlib.suppress(FileNotFoundError):
        return (Path(folder) / name).read_text().splitlines()
    return []


async def until_noted(folder: str, name: str) -> None:
    while not os.path.exists(os.path.join(folder, name)):  # noqa: ASYNC110, ASYNC240 - what is waited for is outside
        await asyncio.sleep(LOOK_S)


def block_until_noted(folder: str, name: str) -> None:
    while not os.path.exists(os.path.join(folder, name)):
        time.sleep(LOOK_S)
