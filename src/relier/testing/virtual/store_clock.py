"""Give a store a clock that tests set: the ledger's scripts with another time library, and the key that holds the time.

Production never runs these scripts: a store uses them only if its client was made with `clocked_scripts()`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from relier.ledger.ledger import load_scripts
from relier.store.scripts import Scripts

CLOCK_KEY = "faketime"  # after the prefix of the namespace
EPOCH_US = 1_800_000_000_000_000
SECOND_US = 1_000_000
TIME_LIBRARY = f"""-- The time that a test has set, instead of the server's.
local now_us = tonumber(redis.call('GET', KEYS[1] .. '{CLOCK_KEY}'))
local now = math.floor(now_us / 1000)
"""


@cache
def clocked_scripts() -> Scripts:
    """Return the scripts of the ledger, which read the time that was set with a StoreClock."""
    return load_scripts(lib__time=TIME_LIBRARY)


class StoreClock:
    """Set the time of one namespace (µs). `command` runs a raw command of its store."""

    def __init__(self, command: Callable[..., Any], prefix: str, now_us: int = EPOCH_US) -> None:
        self._command = command
        self._key = prefix + CLOCK_KEY
        self.began_us = now_us
        self.set(now_us)

    def set(self, now_us: int) -> None:
        self.now_us = now_us
        self._command("SET", self._key, now_us)

    def advance(self, seconds: float) -> None:
        self.set(self.now_us + round(seconds * SECOND_US))
