"""`rl` in a real terminal of a chosen width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def in_terminal(args: Sequence[str], columns: int = 80, **environment: str) -> str:
    """Return what `rl` prints to a terminal, with its escape sequences."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    running = subprocess.Popen(
        [sys.executable, "-m", "relier.cli", *args],
        stdin=child,
        stdout=child,
        stderr=child,
        env=plain | {"TERM": "xterm-256color"} | environment,
    )
    os.close(child)
    said = b""
    with suppress(OSError):  # the terminal is closed once nobody writes to it any more
        while data := os.read(parent, 65536):
            said += data
    os.close(parent)
    running.wait(60)
    return said.decode().replace("\r\n", "\n")


def unstyled(text: str) -> str:
    return ESCAPES.sub("", text)
