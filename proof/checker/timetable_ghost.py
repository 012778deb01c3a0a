"""What the checker remembers of a user's schedule, told by calls and replies alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GhostTimetable:
    """One schedule as its history says it must be. `next` is None unless it is active."""

    version: int
    state: str
    group: str
    origin: str
    definition: bytes
    next: int | None
    last: str = ""
    fired: int = 0

    def owes(self, now: int) -> bool:
        return self.state == "active" and self.next is not None and self.next <= now
