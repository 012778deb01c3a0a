"""Decide which processes write events, and how many are kept.

The decision is part of the text of a process's scripts, so `never` costs nothing, and processes of one namespace may
differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from relier.ledger import defaults
from relier.ledger.keys import SPELLED
from relier.settings import EventMode

TRIMS = 20  # how often a stream is trimmed while all its entries are replaced once


@dataclass(frozen=True, slots=True)
class EventWriting:
    """When a process writes events, and how many changes of each topic are kept."""

    mode: EventMode = "watched"
    keep: int = defaults.EVENTS_KEPT

    def spelled(self) -> dict[str, str]:
        """Return the values of the script words that express this decision."""
        telling = {"always": "true", "watched": f"(redis.call('EXISTS', {SPELLED['WATCHED']}) == 1)", "never": "false"}
        return {
            "TELLING": telling[self.mode],
            "EVENTS_KEPT": str(self.keep),
            "EVENTS_STEP": str(max(1, self.keep // TRIMS)),
        }
