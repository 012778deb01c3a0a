"""The times of Celery's schedules, computed by Celery's own schedule objects, relative to the intended time.

Without Relier, beat asks a schedule object how long to wait after the last run, and every run is a little late. Here,
both the time of the last run and the current time are replaced by the intended time. So all nodes compute the same
times, whenever they do so, and intervals do not drift.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Protocol

from celery.schedules import crontab, schedule, solar
from celery.utils.time import timezone

from relier.errors import ConfigurationError, ScheduleDefinitionError
from relier.schedules.timings import KINDS, Timing, newest_by_steps, newest_every, shown_span

SOLAR_APART_MS = 5000  # solar times closer than this are the same event, computed with an error
_STEP_MS = 60_000
_MOST_STEPS = 1500


class BeatTiming(Timing, Protocol):
    """A timing whose times may depend on the previous occurrence."""

    def following(self, intended_ms: int) -> BeatTiming:
        """Return the timing of the occurrences after `intended_ms`."""
        ...


@dataclass(frozen=True, slots=True)
class Interval:
    """Times at fixed intervals. Unless `start_ms` is set, the first is one interval after the schedule was created."""

    period_ms: int
    start_ms: int | None = None

    def __str__(self) -> str:
        return f"every {shown_span(self.period_ms)}"

    def stored(self) -> dict[str, Any]:
        return {"kind": "celery-interval", "period_ms": self.period_ms}

    def following(self, intended_ms: int) -> Interval:
        return replace(self, start_ms=intended_ms)

    def after(self, ms: int) -> int | None:
        start = ms if self.start_ms is None else self.start_ms
        return start + (max(0, ms - start) // self.period_ms + 1) * self.period_ms

    def newest(self, after: int, until: int, keep: int) -> tuple[list[int], int]:
        return newest_every(self.period_ms, after if self.start_ms is None else self.start_ms, after, until, keep)


@dataclass(frozen=True, slots=True)
class CelerySchedule:
    """Times that do not depend on the previous occurrence: crontab, solar, and intervals with `relative=True`.

    As in Celery, a crontab time that the clocks skip (DST) is an hour later on the new clock. If a time comes twice,
    only the first one counts.
    """

    kind: str
    given: tuple[Any, ...]
    tz: str
    shown: str
    apart_ms: int = 1  # times closer than this are the same time, computed with an error
    _celery: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        made = _MAKERS[self.kind](*self.given)
        made.tz = zone_named(self.tz)
        made.utc_enabled = True
        object.__setattr__(self, "_celery", made)

    @property
    def zone(self) -> tzinfo:
        """The time zone of the app, or of the entry."""
        return zone_named(self.tz)

    def __str__(self) -> str:
        return self.shown if self.tz == "UTC" or self.kind == "solar" else f"{self.shown} {self.tz}"

    def stored(self) -> dict[str, Any]:
        return {"kind": f"celery-{self.kind}", "given": list(self.given), "tz": self.tz, "shown": self.shown}

    def following(self, intended_ms: int) -> CelerySchedule:  # noqa: ARG002 - the same for every occurrence
        return self

    def after(self, ms: int) -> int | None:
        """Return the first time after `ms`.

        In the second pass of a repeated hour, Celery may return a time of the first pass. Then try a later start.
        """
        for step in range(_MOST_STEPS):
            start = ms + step * _STEP_MS
            at = start + self._remaining_ms(start)
            if at >= ms + self.apart_ms:
                return at
        return None

    def _remaining_ms(self, ms: int) -> int:
        now = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).astimezone(self._celery.tz)
        self._celery.nowfun = lambda: now
        remaining: timedelta = self._celery.remaining_estimate(now)
        return -(-remaining // timedelta(milliseconds=1))

    def newest(self, after: int, until: int, keep: int) -> tuple[list[int], int]:
        return newest_by_steps(self.after, self._last_times, after, until, keep)

    def _last_times(self, after: int, until: int, keep: int) -> list[int]:
        """Return the newest times of a long span. Search a short span before `until`, then longer and longer ones."""
        span, times = _STEP_MS, deque[int](maxlen=keep)
        while len(times) < keep and span < 2 * (until - after):
            times.clear()
            at = self.after(max(after, until - span))
            while at is not None and at <= until:
                times.append(at)
                at = self.after(at)
            span *= 2
        return list(times)


def timing_of_schedule(name: str, given: Any, zone: Any) -> BeatTiming:
    """Return the timing of an entry's schedule object. `zone`: the app's time zone."""
    kind = type(given)
    if kind is schedule:
        return _interval(name, given, zone)
    if kind is crontab:
        fields = given.__reduce__()[1]
        return _crontab(tuple(map(_field, fields)), zone_name(zone))
    if kind is solar:
        return _solar(given.event, float(given.lat), float(given.lon))
    raise ConfigurationError(
        f"beat cannot run the entry {name!r} from the ledger: its schedule is a {kind.__module__}.{kind.__qualname__}, "
        f"and only crontab, timedelta, seconds and solar can be stored; use one of these, or run this entry with "
        f"another scheduler"
    )


def in_zone(given: crontab) -> crontab:
    """Return a plain crontab with the fields of a subclass that has its own time zone.

    django-celery-beat has such a subclass, `TzAwareCrontab`.
    """
    return crontab(*given.__reduce__()[1][:5])


def _interval(name: str, given: Any, zone: Any) -> BeatTiming:
    period_ms = given.run_every // timedelta(milliseconds=1)
    if period_ms < 1:
        raise ConfigurationError(
            f"beat cannot run the entry {name!r}: its interval is {given.run_every}; use a longer one"
        )
    return _rounded(period_ms, zone_name(zone)) if given.relative else Interval(period_ms)


def _crontab(fields: tuple[str, ...], tz: str) -> CelerySchedule:
    minute, hour, day_of_week, day_of_month, month = fields
    return CelerySchedule("crontab", fields, tz, f"{minute} {hour} {day_of_month} {month} {day_of_week}")


def _solar(event: str, lat: float, lon: float) -> CelerySchedule:
    return CelerySchedule("solar", (event, lat, lon), "UTC", f"{event} at {lat:g}, {lon:g}", SOLAR_APART_MS)


def _rounded(period_ms: int, tz: str) -> CelerySchedule:
    return CelerySchedule("rounded", (period_ms,), tz, f"every {shown_span(period_ms)}, rounded")


def _field(value: Any) -> str:
    """Return a field of a crontab as text: sets, lists and ranges are written as lists of numbers."""
    return str(value) if isinstance(value, int | str) else ",".join(map(str, sorted(value)))


LOCAL = "local"  # the time zone of the machine: Celery uses it if `enable_utc` is off and `timezone` is not set


def zone_name(zone: Any) -> str:
    """Return the name under which a definition stores a time zone."""
    if zone is timezone.local:
        return LOCAL
    return str(getattr(zone, "key", None) or getattr(zone, "zone", None) or zone)


def zone_named(name: str) -> Any:
    try:
        return timezone.local if name == LOCAL else timezone.get_timezone(name)
    except (OSError, ValueError, KeyError):
        raise ScheduleDefinitionError(
            f"there is no time zone {name!r:.60} on this machine; set the app's `timezone` to a name such as "
            f"'Europe/Paris', or install the tzdata package if the machine has no time zones"
        ) from None


_MAKERS: dict[str, Any] = {
    "crontab": crontab,
    "solar": solar,
    "rounded": lambda period_ms: schedule(timedelta(milliseconds=period_ms), relative=True),
}

KINDS["celery-interval"] = lambda stored: Interval(stored["period_ms"])
KINDS["celery-crontab"] = lambda stored: _crontab(tuple(stored["given"]), stored["tz"])
KINDS["celery-solar"] = lambda stored: _solar(*stored["given"])
KINDS["celery-rounded"] = lambda stored: _rounded(stored["given"][0], stored["tz"])
