"""The times of beat's entries are those that Celery's own schedule objects compute, without drift."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.schedules import crontab, schedule, solar

from relier.celery.beat.timings import Interval, timing_of_schedule, zone_name
from relier.errors import ConfigurationError, ScheduleDefinitionError
from relier.schedules.planning import CatchUpRule, plan_fire
from relier.schedules.timings import COUNT_MOST, read_timing

PARIS = ZoneInfo("Europe/Paris")
MINUTE_MS = 60_000


def ms(*moment: int, tz: Any = UTC, fold: int = 0) -> int:
    return round(1000 * datetime(*moment, tzinfo=tz, fold=fold).timestamp())


def timing(given: Any, zone: Any = UTC) -> Any:
    return timing_of_schedule("e", given, zone)


def times(given: Any, start: int, until: int) -> list[int]:
    found, at = [], given.after(start)
    while at is not None and at <= until:
        found.append(at)
        at = given.following(at).after(at)
    return found


def in_paris(found: list[int]) -> list[str]:
    return [datetime.fromtimestamp(at / 1000, PARIS).strftime("%d %H:%M %z") for at in found]


def due_times_of_celery(given: crontab, start: int, until: int, zone: ZoneInfo) -> list[int]:
    """Return when Celery's own beat runs a crontab: walk a clock in steps of a minute, and ask `is_due`."""
    given.app = Celery("walk", set_as_current=False)
    given.app.conf.timezone = str(zone)
    last, found = datetime.fromtimestamp(start / 1000, zone), []
    for at in range(start, until + 1, MINUTE_MS):
        now = datetime.fromtimestamp(at / 1000, zone)
        given.nowfun = lambda now=now: now
        if given.is_due(last).is_due:
            found.append(at)
            last = now
    return found


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"hour": 3, "minute": 0}, ms(2026, 1, 2, 3)),
        ({"minute": "*/5"}, ms(2026, 1, 1, 12, 5)),
        ({"minute": {15, 45}}, ms(2026, 1, 1, 12, 15)),
        ({"minute": range(20, 40)}, ms(2026, 1, 1, 12, 20)),
        ({"hour": 9, "minute": 0, "day_of_week": "mon-fri"}, ms(2026, 1, 2, 9)),
        ({"hour": 0, "minute": 0, "day_of_month": 1}, ms(2026, 2, 1)),
        ({"hour": 0, "minute": 0, "day_of_month": 29, "month_of_year": 2}, ms(2028, 2, 29)),
    ],
)
def test_a_crontab_has_the_times_of_celery(fields: dict[str, Any], expected: int) -> None:
    assert timing(crontab(**fields)).after(ms(2026, 1, 1, 12)) == expected


@pytest.mark.parametrize("expression", ["30 2 * * *", "*/30 * * * *", "0 */6 * * *", "15 1-3 * * sun"])
@pytest.mark.parametrize(
    ("start", "until"), [((2026, 3, 28), (2026, 3, 31)), ((2026, 10, 24), (2026, 10, 27))], ids=["forward", "back"]
)
def test_a_crontab_runs_when_celery_would_run_it_while_clocks_change(
    expression: str, start: tuple[int, ...], until: tuple[int, ...]
) -> None:
    given, span = crontab.from_string(expression), (ms(*start, tz=PARIS), ms(*until, tz=PARIS))
    assert in_paris(times(timing(given, PARIS), *span)) == in_paris(due_times_of_celery(given, *span, PARIS))


def test_a_crontab_time_that_the_clocks_skip_runs_on_the_new_clock() -> None:
    found = times(timing(crontab(hour=2, minute=30), PARIS), ms(2026, 3, 28), ms(2026, 3, 30, 12))
    assert in_paris(found) == ["28 02:30 +0100", "29 03:30 +0200", "30 02:30 +0200"]


def test_a_crontab_time_that_comes_twice_runs_once() -> None:
    found = times(timing(crontab(hour=2, minute=30), PARIS), ms(2026, 10, 24), ms(2026, 10, 26, 12))
    assert in_paris(found) == ["24 02:30 +0200", "25 02:30 +0200", "26 02:30 +0100"]


def test_a_crontab_that_is_declared_in_the_repeated_hour_runs_after_it_was_declared() -> None:
    declared = ms(2026, 10, 25, 2, 10, tz=PARIS, fold=1)
    at = timing(crontab(minute="*/15"), PARIS).after(declared)
    assert declared < at <= ms(2026, 10, 25, 3, tz=PARIS)


def test_times_are_strictly_after_the_given_one() -> None:
    every_minute, at = timing(crontab()), ms(2026, 1, 1, 12)
    assert every_minute.after(at - 1) == at
    assert every_minute.after(at) == at + MINUTE_MS


def test_an_interval_is_counted_from_the_intended_time() -> None:
    ten = timing(schedule(timedelta(seconds=10)))
    first = ten.after(1_234_567)
    assert first == 1_244_567
    late = first + 3_700
    assert plan_fire(ten.following(first), CatchUpRule(), first, late).next_ms == first + 10_000


@pytest.mark.parametrize("given", [schedule(timedelta(seconds=10)), crontab(minute="*/2")])
def test_after_downtime_only_the_newest_time_runs(given: Any) -> None:
    made, first = timing(given), ms(2026, 1, 1)
    plan = plan_fire(made.following(first), CatchUpRule(), first, first + 10 * MINUTE_MS + 500)
    assert plan.runs == (first + 10 * MINUTE_MS,)
    assert plan.missed == (60 if isinstance(made, Interval) else 5)


def test_a_long_downtime_does_not_enumerate_every_time() -> None:
    every_minute, first, now = timing(crontab()), ms(2020, 1, 1), ms(2026, 1, 1, 0, 0, 30)
    plan = plan_fire(every_minute, CatchUpRule(), first, now)
    assert plan.runs == (ms(2026, 1, 1),)
    assert plan.missed == COUNT_MOST
    assert plan.next_ms == ms(2026, 1, 1, 0, 1)


def test_a_relative_interval_is_rounded_as_celery_does() -> None:
    hourly = timing(schedule(timedelta(hours=1), relative=True))
    assert hourly.after(ms(2026, 1, 1, 10, 25)) == ms(2026, 1, 1, 11)
    assert hourly.after(ms(2026, 1, 1, 11)) == ms(2026, 1, 1, 12)
    daily = timing(schedule(timedelta(days=1), relative=True), PARIS)
    assert in_paris(times(daily, ms(2026, 3, 28, 12), ms(2026, 3, 30, 12))) == ["29 00:00 +0100", "30 00:00 +0200"]


def test_solar_events_come_once_a_day() -> None:
    pytest.importorskip("ephem")
    sunrise = timing(solar("sunrise", 48.85, 2.35))
    found = times(sunrise, ms(2026, 6, 1), ms(2026, 6, 8))
    assert len(found) == 7
    assert all(abs(later - earlier - 86_400_000) < 5 * MINUTE_MS for earlier, later in pairwise(found))
    assert [datetime.fromtimestamp(at / 1000, UTC).hour for at in found] == [3] * 7


@pytest.mark.parametrize(
    "given",
    [
        schedule(timedelta(seconds=90)),
        schedule(timedelta(hours=2), relative=True),
        crontab(minute={0, 30}, hour="8-17", day_of_week="mon,wed"),
        crontab(day_of_month="1-7", month_of_year="*/3", hour=0, minute=5),
    ],
)
def test_a_stored_timing_gives_the_same_times(given: Any) -> None:
    made = timing(given, PARIS)
    again: Any = read_timing(made.stored())
    start = ms(2026, 3, 1)
    assert times(again, start, start + 2 * 86_400_000) == times(made, start, start + 2 * 86_400_000)
    assert str(again) == str(made)


def test_a_stored_solar_schedule_gives_the_same_times() -> None:
    pytest.importorskip("ephem")
    made = timing(solar("dusk_civil", -33.86, 151.2))
    assert read_timing(made.stored()).after(ms(2026, 3, 1)) == made.after(ms(2026, 3, 1))


@pytest.mark.parametrize(("zone", "enable_utc", "name"), [("Europe/Paris", True, "Europe/Paris"), (None, True, "UTC")])
def test_the_zone_is_the_one_of_the_app(zone: str | None, enable_utc: bool, name: str) -> None:
    app = Celery("zoned", set_as_current=False)
    app.conf.update(timezone=zone, enable_utc=enable_utc)
    assert zone_name(app.timezone) == name


def test_without_utc_and_zone_crontabs_follow_the_clock_of_the_machine() -> None:
    app = Celery("local", set_as_current=False)
    app.conf.update(timezone=None, enable_utc=False)
    made = timing(crontab(hour=3, minute=0), app.timezone)
    assert made.tz == "local"
    at = made.after(ms(2026, 1, 1))
    assert datetime.fromtimestamp(at / 1000).astimezone().strftime("%H:%M") == "03:00"


class Fortnightly(schedule):
    pass


@pytest.mark.parametrize("given", [Fortnightly(timedelta(days=14)), schedule(timedelta(0))])
def test_a_schedule_that_cannot_be_stored_is_refused_with_its_entry(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="the entry 'e'"):
        timing(given)


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(ScheduleDefinitionError, match="no time zone 'Mars/Base'"):
        read_timing({"kind": "celery-crontab", "given": ["*"] * 5, "tz": "Mars/Base"})
