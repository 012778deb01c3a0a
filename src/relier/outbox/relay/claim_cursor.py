"""Where in the order of due rows a relay has come to, so that its next claim begins there.

A deleted row stays in PostgreSQL's index as long as any transaction might still see it: a report, a dump. All of them
stand where a claim begins, and every claim would read them again. But what commits late, or is given back, stands
there, too: a claim looks at the whole every now and then, and more rarely the longer that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relier.outbox.row import Row

SHARE = 10  # for each second that a look at the whole takes, so many pass before the next one
SOONEST_S = 0.005  # and never less


class ClaimCursor:
    """`longest`: how long a row that commits late may have to wait (s)."""

    def __init__(self, clock: Callable[[], float], longest: float) -> None:
        self._clock = clock
        self._longest = longest
        self._kinds: Sequence[str] = ()
        self._reached: tuple[int, int] | None = None
        self._whole_at = 0.0

    def forget(self) -> None:
        """Rows before it are free again: the next claim looks at the whole."""
        self._reached = None

    def after(self, kinds: Sequence[str]) -> tuple[int, int] | None:
        """Where the next claim of these kinds begins; None: it looks at the whole."""
        if kinds != self._kinds or self._clock() >= self._whole_at:
            return None
        return self._reached

    def claimed(self, kinds: Sequence[str], rows: Sequence[Row], began: float | None) -> None:
        """`began`: when a look at the whole did; None, if it was none."""
        if began is not None:
            now = self._clock()
            self._whole_at = now + min(self._longest, max(SOONEST_S, SHARE * (now - began)))
            self._kinds, self._reached = kinds, None
        if rows:
            self._reached = max((row.due_at, row.id) for row in rows)
