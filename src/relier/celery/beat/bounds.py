"""Timings with a start, an end, or only one run, for rows of django-celery-beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from relier.celery.beat.timings import BeatTiming, Interval
from relier.schedules.timings import KINDS, At, read_timing
from relier.schedules.views import moment


@dataclass(frozen=True, slots=True)
class Clocked:
    """One time. If it has already passed when the schedule is created, the schedule is due at once."""

    at_ms: int

    def __str__(self) -> str:
        return str(At(moment(self.at_ms)))

    def stored(self) -> dict[str, Any]:
        return {"kind": "celery-clocked", "at_ms": self.at_ms}

    def following(self, intended_ms: int) -> Clocked:  # noqa: ARG002 - `Bounded` ends the schedule
        return self

    def after(self, ms: int) -> int | None:
        return max(self.at_ms, ms + 1)

    def newest(self, after: int, until: int, keep: int) -> tuple[list[int], int]:  # noqa: ARG002
        return [], 0


@dataclass(frozen=True, slots=True)
class Bounded:
    """The times of `inner` from `start_ms` to `end_ms`. If `once` is set, only the first of them.

    An interval's first time is `start_ms` itself, as in django-celery-beat.
    """

    inner: BeatTiming
    start_ms: int | None = None
    end_ms: int | None = None
    once: bool = False
    is_over: bool = False

    def __str__(self) -> str:
        return f"{self.inner}, once" if self.once else str(self.inner)

    def stored(self) -> dict[str, Any]:
        bounds = {"start_ms": self.start_ms, "end_ms": self.end_ms, "once": self.once}
        return {"kind": "celery-bounded", "inner": self.inner.stored(), **bounds}

    def following(self, intended_ms: int) -> Bounded:
        return replace(self, inner=self.inner.following(intended_ms), is_over=self.once)

    def after(self, ms: int) -> int | None:
        if self.is_over:
            return None
        at = self.inner.after(ms)
        if self.start_ms is not None and ms < self.start_ms:
            at = self.start_ms if isinstance(self.inner, Interval) else self.inner.after(self.start_ms - 1)
        return None if at is None or (self.end_ms is not None and at > self.end_ms) else at

    def newest(self, after: int, until: int, keep: int) -> tuple[list[int], int]:
        if self.is_over:
            return [], 0
        return self.inner.newest(after, until if self.end_ms is None else min(until, self.end_ms), keep)


def _bounded(stored: Mapping[str, Any]) -> Bounded:
    inner = cast("BeatTiming", read_timing(stored["inner"]))
    return Bounded(inner, stored["start_ms"], stored["end_ms"], stored["once"])


KINDS["celery-clocked"] = lambda stored: Clocked(stored["at_ms"])
KINDS["celery-bounded"] = _bounded
