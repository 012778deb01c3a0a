"""What a process reports about itself when it registers, and with each heartbeat."""

from __future__ import annotations

import os
import platform
import secrets
from typing import Any

from relier.ledger.moves.node import NODE_ID_CHARS
from relier.ledger.nodes import Role
from relier.version import __version__


def process_about(role: Role, engine: str) -> dict[str, Any]:
    """Return the facts about this process that never change: its role, engine, host, pid and version."""
    return {"role": role.value, "engine": engine, "host": platform.node(), "pid": os.getpid(), "version": __version__}


def new_helper_id(role: Role) -> str:
    """Return a new node id. It shows the role and the process, and ends with a random part."""
    place = f"{role.value}.{os.getpid()}."
    return place + secrets.token_hex(12)[: NODE_ID_CHARS - len(place)]


def resident_mb() -> float:
    """Return this process's resident memory in MB (Linux), or 0 on other systems."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return 0.0
