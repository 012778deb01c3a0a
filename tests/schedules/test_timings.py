"""The times of schedules: cron, every, at. DST is handled as in Debian's cron and cronsim."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from relier.errors import ConfigurationError, ScheduleDefinitionError
from relier.schedules import timings
from relier.schedules.timings import COUNT_MOST, At, Cron, Every, Timing, read_timing

PARIS = ZoneInfo("Europe/Paris")
DAY_MS = 86_400_000


def ms(*moment: int, tz: Any = UTC) -> int:
    return round(1000 * datetime(*moment, tzinfo=tz).timestamp())


def following(timing: Timing, start: int, n: int) -> list[int]:
    times: list[int] = []
    for _ in range(n):
        at = timing.after(times[-1] if times else start)
        assert at is not None
        times.append(at)
    return times


def in_paris(times: list[int]) -> list[str]:
    return [datetime.fromtimestamp(at / 1000, PARIS).strftime("%d %H:%M %z") for at in times]


# --- cron --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 3 * * *", ms(2026, 1, 2, 3)),
        ("30 0 3 * * *", ms(2026, 1, 2, 3, 0, 30)),
        ("*/5 * * * *", ms(2026, 1, 1, 12, 5)),
        ("*/10 * * * * *", ms(2026, 1, 1, 12, 0, 10)),
        ("0 9 * * MON-FRI", ms(2026, 1, 2, 9)),
        ("0 9 * JAN sun", ms(2026, 1, 4, 9)),
        ("0 0 L * *", ms(2026, 1, 31)),
        ("0 0 * * MON#2", ms(2026, 1, 12)),
        ("0 0 29 2 *", ms(2028, 2, 29)),
    ],
)
def test_a_cron_expression_has_five_or_six_fields_and_names(expression: str, expected: int) -> None:
    assert Cron(expression).after(ms(2026, 1, 1, 12)) == expected


def test_a_cron_time_is_strictly_after_the_given_one() -> None:
    cron = Cron("0 3 * * *")
    at = ms(2026, 1, 2, 3)
    assert cron.after(at - 1) == at
    assert cron.after(at) == at + DAY_MS
    assert cron.after(at + 999) == at + DAY_MS


def test_a_cron_expression_is_read_in_its_zone() -> None:
    assert Cron("0 3 * * *", "Europe/Paris").after(ms(2026, 1, 1)) == ms(2026, 1, 1, 2)
    assert Cron("0 3 * * *", "Europe/Paris").after(ms(2026, 7, 1)) == ms(2026, 7, 1, 1)


GAP = ms(2026, 3, 29, 0, tz=PARIS) - 1  # at 2:00, clocks go to 3:00
TWICE = ms(2026, 10, 25, 0, tz=PARIS) - 1  # at 3:00, clocks go back to 2:00


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        # minute and hour do not begin with `*`: each time once a day, whatever the clocks do
        ("30 2 * * *", GAP, ["29 03:00 +0200", "30 02:30 +0200"]),
        ("30 2 * * *", TWICE, ["25 02:30 +0200", "26 02:30 +0100"]),
        ("0,30 2 * * *", GAP, ["29 03:00 +0200", "30 02:00 +0200", "30 02:30 +0200"]),
        ("30 1-3 * * *", TWICE, ["25 01:30 +0200", "25 02:30 +0200", "25 03:30 +0100"]),
        # every hour or minute: by local wall-clock time
        ("0 * * * *", GAP, ["29 00:00 +0100", "29 01:00 +0100", "29 03:00 +0200"]),
        ("0 * * * *", TWICE, ["25 00:00 +0200", "25 01:00 +0200", "25 02:00 +0200", "25 02:00 +0100"]),
        ("*/30 2 * * *", GAP, ["30 02:00 +0200", "30 02:30 +0200"]),
        ("*/30 2 * * *", TWICE, ["25 02:00 +0200", "25 02:30 +0200", "25 02:00 +0100", "25 02:30 +0100"]),
        # six fields: by local wall-clock time, always
        ("0 30 2 * * *", GAP, ["30 02:30 +0200"]),
        ("0 30 2 * * *", TWICE, ["25 02:30 +0200", "25 02:30 +0100", "26 02:30 +0100"]),
    ],
)
def test_times_that_the_clocks_skip_or_repeat_run_once(expression: str, start: int, expected: list[str]) -> None:
    assert in_paris(following(Cron(expression, "Europe/Paris"), start, len(expected))) == expected


def test_a_daily_time_does_not_run_in_the_second_pass_of_an_hour() -> None:
    """It is 2:15 for the second time: the run of 2:30 was 45 minutes ago."""
    second = ms(2026, 10, 25, 0, 15) + 3_600_000  # 2:15 +0100
    assert in_paris([second]) == ["25 02:15 +0100"]
    assert in_paris(following(Cron("30 2 * * *", "Europe/Paris"), second, 1)) == ["26 02:30 +0100"]
    assert Cron("30 2 * * *", "Europe/Paris").newest(TWICE, second, 9) == ([ms(2026, 10, 25, 0, 30)], 1)


EXPRESSIONS = (
    "30 2 * * *",
    "*/30 2 * * *",
    "0 * * * *",
    "*/7 * * * *",
    "0 0 3 * * MON",
    "0 30 2 * * *",
    "15 1-3 * * *",
    "0 0 L * *",
    "0 9 * * MON-FRI",
    "0,15 2,3 * * *",
)
ZONES = ("UTC", "Europe/Paris", "America/New_York", "Australia/Lord_Howe")


@pytest.mark.parametrize("zone", ZONES)
def test_the_newest_times_equal_those_found_by_iterating_forward(zone: str) -> None:
    rng = random.Random(zone)
    for _ in range(150):
        cron, keep = Cron(rng.choice(EXPRESSIONS), zone), rng.choice((1, 3, 100))
        after = ms(2026, rng.choice((3, 4, 10, 11)), 1) + rng.randrange(31 * DAY_MS)
        until = after + rng.choice((3_600_000, DAY_MS, 10 * DAY_MS))
        times: list[int] = []
        at = cron.after(after)
        while at is not None and at <= until:
            assert not times or at > times[-1]
            times.append(at)
            at = cron.after(at)
        newest, total = cron.newest(after, until, keep)
        assert newest == times[-keep:]
        assert total == min(len(times), COUNT_MOST)
        assert cron._back_from(after, until, keep) == times[-keep:], "the way of long gaps"


def test_a_gap_of_years_is_not_enumerated() -> None:
    times, total = Cron("* * * * * *").newest(0, ms(2026, 1, 1), 3)
    assert times == [ms(2025, 12, 31, 23, 59, 58), ms(2025, 12, 31, 23, 59, 59), ms(2026, 1, 1)]
    assert total == COUNT_MOST


@pytest.mark.parametrize("expression", ["", "* * *", "61 * * * *", "0 25 * * *", "0 0 30 2 *", "0 0 * * NO", 5, None])
def test_an_invalid_expression_is_refused_when_it_is_written(expression: Any) -> None:
    with pytest.raises(ScheduleDefinitionError, match=r"invalid.*such as"):
        Cron(expression)


def test_utc_needs_no_time_zones_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timings, "ZoneInfo", _no_zones)
    assert Cron("0 3 * * *").after(ms(2026, 1, 1, 12)) == ms(2026, 1, 2, 3)
    with pytest.raises(ScheduleDefinitionError, match="install the tzdata package"):
        Cron("0 3 * * *", tz="Asia/Tokyo")


def _no_zones(name: str) -> None:
    raise KeyError(name)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../../etc/passwd", "Europe/", 3, None])
def test_an_unknown_zone_is_refused_when_it_is_written(zone: Any) -> None:
    with pytest.raises(ConfigurationError, match="time zone"):
        Cron("0 3 * * *", tz=zone)


# --- every -------------------------------------------------------------------------------------------------------


def test_intervals_are_counted_from_a_fixed_start_and_never_drift() -> None:
    assert following(Every(30), ms(2026, 1, 1, 0, 0, 7), 3) == [
        ms(2026, 1, 1, 0, 0, 30),
        ms(2026, 1, 1, 0, 1),
        ms(2026, 1, 1, 0, 1, 30),
    ]
    start = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
    assert following(Every(timedelta(days=1), start), ms(2025, 6, 1), 2) == [
        ms(2026, 1, 1, 0, 0, 10),
        ms(2026, 1, 2, 0, 0, 10),
    ]


def test_the_newest_intervals_of_a_long_gap_are_computed() -> None:
    every = Every(1)
    until = ms(2026, 1, 1)
    times, total = every.newest(0, until, 3)
    assert times == [until - 2000, until - 1000, until]
    assert total == until // 1000
    assert every.newest(until, until + 999, 3) == ([], 0)
    assert every.newest(until, until + 1000, 3) == ([until + 1000], 1)


@pytest.mark.parametrize("period", [0, -1, 0.5, float("nan"), float("inf"), "30", None, True, timedelta(0), 10**12])
def test_an_invalid_interval_is_refused(period: Any) -> None:
    with pytest.raises(ScheduleDefinitionError, match="at least 1 s"):
        Every(period)


# --- at ----------------------------------------------------------------------------------------------------------


def test_at_is_one_time() -> None:
    at = At(datetime(2026, 1, 1, 12, tzinfo=PARIS))
    when = ms(2026, 1, 1, 11)
    assert (at.after(when - 1), at.after(when)) == (when, None)
    assert at.newest(when - 1, when, 3) == ([when], 1)
    assert at.newest(when, when + 1, 3) == ([], 0)


@pytest.mark.parametrize("moment", [datetime(2026, 1, 1), "2026-01-01", 1_700_000_000, None])  # noqa: DTZ001
def test_a_datetime_needs_a_zone(moment: Any) -> None:
    with pytest.raises(ScheduleDefinitionError, match="with a time zone"):
        At(moment)
    if moment is not None:
        with pytest.raises(ScheduleDefinitionError, match="with a time zone"):
            Every(60, start=moment)


# --- stored ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "timing",
    [
        Cron("0 3 * * *", "Europe/Paris"),
        Every(2.5),
        Every(3600, datetime(2026, 1, 1, tzinfo=UTC)),
        At(datetime(2026, 1, 1, tzinfo=UTC)),
    ],
    ids=str,
)
def test_a_stored_timing_is_read_back(timing: Timing) -> None:
    read = read_timing(timing.stored())
    assert read.stored() == timing.stored()
    assert read.after(ms(2025, 12, 1)) == timing.after(ms(2025, 12, 1))


@pytest.mark.parametrize("stored", [{}, {"kind": "lunar"}, {"kind": "cron"}, {"kind": "every", "period_ms": "x"}])
def test_an_unknown_kind_of_timing_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(ScheduleDefinitionError):
        read_timing(stored)
