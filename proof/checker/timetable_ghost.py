"""What the checker remembers about a user's schedule, derived from calls and replies alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GhostTimetable:
    """A schedule as the history says it must be. `next` is None unless the schedule is active."""

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
