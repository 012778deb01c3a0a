"""When a schedule is due: by a cron expression, at fixed intervals, or once.

    Cron("0 3 * * *", tz="Europe/Paris")      at 3:00 in Paris
    Every(30)                                 every 30 seconds
    At(datetime(2027, 1, 1, tzinfo=UTC))      once

Times are whole milliseconds since the epoch. A timing never reads a clock: its methods are pure functions of their
arguments. `KINDS` maps the `kind` in a stored definition to the class that reads it.

Cron times that the clocks skip or repeat (DST) are handled as in Debian's cron, by cronsim. In a five-field expression
whose minute and hour fields do not begin with `*`, each time runs once a day: a skipped time runs right after the gap,
and a repeated time runs only the first time. All other expressions follow local wall-clock time: skipped times do not
run, and times in a repeated hour run twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from relier.errors import ScheduleDefinitionError
from relier.options import LONGEST_S, is_number

COUNT_MOST = 1000  # missed cron times are counted up to here; a count of 1000 means "at least 1000"
SHORTEST_MS = 1000
_OVERLAP_MS = 3 * 3_600_000  # longer than clocks are ever set back at once


class Timing(Protocol):
    """Compute the times of one schedule."""

    def after(self, ms: int) -> int | None:
        """Return the first time after `ms`, or None if there is none."""
        ...

    def newest(self, after: int, until: int, keep: int) -> tuple[list[int], int]:
        """Return the newest `keep` times with after < time <= until, oldest first, and how many there are in all."""
        ...

    def stored(self) -> dict[str, Any]:
        """Return the timing as a definition stores it: a dict with its `kind`."""
        ...

    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Cron:
    """Times given by a cron expression with five fields, or six with seconds first, in a time zone.

    Names (`MON`, `JAN`), ranges, steps, `L`, `LW` and `MON#2` are understood, as in Debian's cron and cronsim.
    """

    expression: str
    tz: str = "UTC"
    _zone: tzinfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str) or not isinstance(self.tz, str):
            raise ScheduleDefinitionError(
                f"Cron({self.expression!r:.60}, tz={self.tz!r:.60}) is invalid: the expression is text such as "
                f"'0 3 * * *', and tz is the name of a time zone such as 'Europe/Paris'"
            )
        object.__setattr__(self, "_zone", _zone_of(self.tz))
        try:
            CronSim(self.expression, datetime(2026, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            raise ScheduleDefinitionError(
                f"the cron expression {self.expression!r:.80} is invalid: {str(error).lower()}; write five fields "
                f"(minute hour day month weekday), or six with seconds first, such as '*/5 * * * *' or '0 3 * * MON'"
            ) from None
        if self.after(0) is None:
            raise ScheduleDefinitionError(
                f"the cron expression {self.expression!r:.80} has no time within 50 years: no month has such a day; "
                f"correct its day and month"
            )

    @property
    def zone(self) -> tzinfo:
        """The time zone of the expression."""
        return self._zone

    def __str__(self) -> str:
        return self.expression if self.tz == "UTC" else f"{self.expression} {self.tz}"

    def stored(self) -> dict[str, Any]:
        return {"kind": "cron", "expression": self.expression, "tz": self.tz}

    def after(self, ms: int) -> int | None:
        start = datetime.fromtimestamp(ms // 1000, UTC).astimezone(self._zone)
        for found in CronSim(self.expression, start):
            # In the second pass of a repeated hour, the first time found may lie before the start.
            at = round(found.timestamp()) * 1000
            if at > ms:
                return at
        return None

    def newest(self, after: int, until: int, keep: int) -> tuple[list[int], int]:
        return newest_by_steps(self.after, self._back_from, after, until, keep)

    def _back_from(self, after: int, until: int, keep: int) -> list[int]:
        """Return the newest times of a long span.

        Iterating backwards only finds where to start. The times themselves come from `after`.
        """
        start = datetime.fromtimestamp((until + _OVERLAP_MS) // 1000, UTC).astimezone(self._zone)
        first, left = after, keep
        for found in CronSim(self.expression, start, reverse=True):
            first = round(found.timestamp()) * 1000
            left -= first <= until
            if left < 0 or first <= after:
                break
        times: deque[int] = deque(maxlen=keep)
        at = self.after(max(after, first - _OVERLAP_MS) if self._is_daily() else max(after, first))
        while at is not None and at <= until:
            times.append(at)
            at = self.after(at)
        return list(times)

    def _is_daily(self) -> bool:
        """Return whether cronsim moves times of this expression that the clocks skip or repeat."""
        fields = self.expression.split()
        return len(fields) == 5 and not fields[0].startswith("*") and not fields[1].startswith("*")


@dataclass(frozen=True, slots=True)
class Every:
    """Times at fixed intervals, counted from `start`, by default from 1970-01-01 00:00 UTC.

    Times never drift: they depend neither on when the schedule was created nor on when it ran.
    """

    period: float | timedelta
    start: datetime | None = None
    period_ms: int = field(init=False, repr=False, compare=False)
    start_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        period: Any = self.period
        seconds = period.total_seconds() if isinstance(period, timedelta) else period
        if not is_number(seconds) or not SHORTEST_MS <= 1000 * seconds <= 1000 * LONGEST_S:
            raise ScheduleDefinitionError(
                f"Every({self.period!r:.60}) is invalid: the interval is a number of seconds or a timedelta, at least "
                f"{SHORTEST_MS // 1000} s; to run more often, push several tasks from one run"
            )
        object.__setattr__(self, "period_ms", round(1000 * seconds))
        object.__setattr__(self, "start_ms", 0 if self.start is None else moment_ms("start", self.start))

    def __str__(self) -> str:
        return f"every {shown_span(self.period_ms)}"

    def stored(self) -> dict[str, Any]:
        return {"kind": "every", "period_ms": self.period_ms, "start_ms": self.start_ms}

    def after(self, ms: int) -> int | None:
        return after_every(self.period_ms, self.start_ms, ms)

    def newest(self, after: int, until: int, keep: int) -> tuple[list[int], int]:
        return newest_every(self.period_ms, self.start_ms, after, until, keep)


def after_every(period: int, start: int, ms: int) -> int:
    """Return the first time after `ms` among start, start + period, …"""
    return start if ms < start else start + ((ms - start) // period + 1) * period


def newest_by_steps(
    following: Callable[[int], int | None],
    last_times: Callable[[int, int, int], list[int]],
    after: int,
    until: int,
    keep: int,
) -> tuple[list[int], int]:
    """Return the newest times of a timing, found one after the other, and how many there are.

    A long span is counted up to COUNT_MOST. Then `last_times` finds the newest times of it.
    """
    times: deque[int] = deque(maxlen=keep)
    total, at = 0, following(after)
    while at is not None and at <= until:
        times.append(at)
        total += 1
        if total == COUNT_MOST:
            return last_times(after, until, keep), COUNT_MOST
        at = following(at)
    return list(times), total


def newest_every(period: int, start: int, after: int, until: int, keep: int) -> tuple[list[int], int]:
    """Return the newest times in (after, until], oldest first, and their total number. Long gaps cost no more."""
    first = after_every(period, start, after)
    if first > until:
        return [], 0
    total = (until - first) // period + 1
    newest = first + (total - 1) * period
    return [newest - n * period for n in reversed(range(min(keep, total)))], total


@dataclass(frozen=True, slots=True)
class At:
    """One time, given as a datetime with a time zone."""

    when: datetime
    at_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "at_ms", moment_ms("at", self.when))

    def __str__(self) -> str:
        return f"at {self.when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

    def stored(self) -> dict[str, Any]:
        return {"kind": "at", "at_ms": self.at_ms}

    def after(self, ms: int) -> int | None:
        return self.at_ms if self.at_ms > ms else None

    def newest(self, after: int, until: int, keep: int) -> tuple[list[int], int]:
        due = after < self.at_ms <= until
        return ([self.at_ms] if due and keep else []), int(due)


def moment_ms(what: str, moment: Any) -> int:
    """Return a datetime as milliseconds. Refuse one without a time zone."""
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ScheduleDefinitionError(
            f"{what} must be a datetime with a time zone, not {moment!r:.60}: without a zone it means a different "
            f"moment on each machine; write datetime(…, tzinfo=UTC), or tzinfo=ZoneInfo('Europe/Paris')"
        )
    return max(1, round(1000 * moment.timestamp()))


def shown_span(ms: int) -> str:
    """Return an interval for people: 90 s, 15 min, 2 h, 1 d."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if ms >= size and ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms / 1000:g} s"


@lru_cache(maxsize=256)
def _zone_of(name: str) -> tzinfo:
    if name == "UTC":  # also on a machine without time zones
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # unknown; no time zones on this system; or a path
        raise ScheduleDefinitionError(
            f"there is no time zone {name!r:.60} on this machine; use a name such as 'Europe/Paris' or 'UTC', or "
            f"install the tzdata package if the machine has no time zones"
        ) from None


def _from_ms(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


KINDS: dict[str, Callable[[Mapping[str, Any]], Timing]] = {
    "cron": lambda stored: Cron(stored["expression"], stored["tz"]),
    "every": lambda stored: Every(
        stored["period_ms"] / 1000, _from_ms(stored["start_ms"]) if stored["start_ms"] else None
    ),
    "at": lambda stored: At(_from_ms(stored["at_ms"])),
}


def read_timing(stored: Mapping[str, Any]) -> Timing:
    """Return the timing of a stored definition. Raise ScheduleDefinitionError if this process cannot compute it."""
    make = KINDS.get(stored.get("kind", ""))
    if make is None:
        raise ScheduleDefinitionError(
            f"this process does not know timings of kind {stored.get('kind')!r:.60}: a newer release of Relier wrote "
            f"the schedule, or Celery's beat did; fire it with that release, or with beat"
        )
    try:
        return make(stored)
    except (KeyError, TypeError, ValueError) as error:
        raise ScheduleDefinitionError(f"the stored timing {stored!r:.120} cannot be read: {error}") from error
