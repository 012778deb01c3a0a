"""A relay's position in the order of due rows, where its next claim starts.

A deleted row stays in PostgreSQL's index as long as any transaction, such as a report or a dump, might still see it.
Such rows are at the start of the order, and every claim from the start would read them again. But rows that commit
late, or that are released, are there too. So some claims start from the beginning: the longer such a claim takes, the
less often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relier.outbox.row import Row

SHARE = 10  # seconds until the next full claim, for each second that a full claim takes
SOONEST_S = 0.005  # the shortest such pause


class ClaimCursor:
    """Where the next claim of a relay starts. `longest`: the longest time that a late commit may wait for a full claim
    (s)."""

    def __init__(self, clock: Callable[[], float], longest: float) -> None:
        self._clock = clock
        self._longest = longest
        self._kinds: Sequence[str] = ()
        self._reached: tuple[int, int] | None = None
        self._whole_at = 0.0
        self._is_partial = False  # the last claim

    def forget(self) -> None:
        """Reset the cursor because rows before it are free again. The next claim is a full one."""
        self._reached = None

    def after(self, kinds: Sequence[str]) -> tuple[int, int] | None:
        """Return where the next claim of these kinds starts; None for a full claim."""
        if kinds != self._kinds or self._clock() >= self._whole_at:
            return None
        return self._reached

    def pause(self, longest: float) -> float:
        """Return how long a relay may sleep (s), at most `longest`. After a claim that was not full, a row that
        committed late may wait for the next full one."""
        return min(longest, max(0.0, self._whole_at - self._clock())) if self._is_partial else longest

    def claimed(self, kinds: Sequence[str], rows: Sequence[Row], began: float | None) -> None:
        """Move the cursor after a claim. `began`: when a full claim began; None if the claim was not full."""
        self._is_partial = began is None
        if began is not None:
            now = self._clock()
            self._whole_at = now + min(self._longest, max(SOONEST_S, SHARE * (now - began)))
            self._kinds, self._reached = kinds, None
        if rows:
            self._reached = max((row.due_at, row.id) for row in rows)
