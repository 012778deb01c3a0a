"""Burn rates and alerts: cases computed by hand, and properties."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relier.ledger.outcomes.records import PeriodCounts, Series
from relier.slo import WINDOWS, Objective, OutcomeHistory, judge, judge_all
from relier.slo.burn import burn_rate, firing_rules

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

MINUTE, HOUR = 60_000, 3_600_000
NOW = 500_000 * HOUR + 30 * MINUTE + 12_345  # half past
DONE, DEAD = Series("done", 1, "q", "n"), Series("dead", 1, "q", "n")
SUCCESS = Objective(target=0.999)


def history(minutes: dict[int, tuple[int, int]], hours: dict[int, tuple[int, int]] | None = None) -> OutcomeHistory:
    """Return a history from done and dead tasks by age, in minutes and in hours."""

    def periods(found: dict[int, tuple[int, int]], unit: int) -> tuple[PeriodCounts, ...]:
        start = NOW // unit * unit
        return tuple(PeriodCounts(start - age * unit, {DONE: done, DEAD: dead}) for age, (done, dead) in found.items())

    return OutcomeHistory(NOW, periods(minutes, MINUTE), periods(hours or {}, HOUR))


@pytest.mark.parametrize(
    ("good", "total", "target", "rate"),
    [
        (999, 1000, 0.999, 1.0),
        (1000, 1000, 0.999, 0.0),
        (0, 5, 0.999, 1000.0),
        (9856, 10_000, 0.999, 14.4),
        (98, 100, 0.99, 2.0),
        (50, 100, 0.5, 1.0),
    ],
)
def test_burn_rates_equal_those_computed_by_hand(good: int, total: int, target: float, rate: float) -> None:
    assert burn_rate(good, total, target) == pytest.approx(rate)


def test_nothing_counted_has_no_burn_rate() -> None:
    assert burn_rate(0, 0, 0.999) is None
    status = judge(SUCCESS, history({}))
    assert (status.state, status.budget_left, status.firing) == ("no data", None, ())


@unhurried
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0.01, 0.9999))
def test_a_burn_rate_is_the_failed_share_over_the_allowed_share(done: int, dead: int, target: float) -> None:
    rate = burn_rate(done, done + dead, target)
    if done + dead == 0:
        assert rate is None
        return
    assert rate is not None
    assert rate * (1 - target) * (done + dead) == pytest.approx(dead)
    assert (rate > 1) == (dead / (done + dead) > 1 - target)


@unhurried
@given(st.dictionaries(st.integers(0, 400), st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_a_window_has_its_whole_minutes_and_the_present_one(minutes: dict[int, tuple[int, int]]) -> None:
    found = history(minutes)
    for window in ("5m", "30m", "1h", "6h"):
        within = [counts for age, counts in minutes.items() if age <= WINDOWS[window]]
        counts = found.last(WINDOWS[window])
        assert (counts[DONE], counts[DEAD]) == (sum(n for n, _ in within), sum(n for _, n in within))


def test_three_days_are_counted_by_the_hour() -> None:
    found = history({0: (1, 0)}, {0: (10, 1), 72: (20, 2), 73: (500, 500)})
    assert found.last(WINDOWS["3d"]) == {DONE: 30, DEAD: 3}


def test_a_sudden_outage_pages_at_once() -> None:
    """All tasks fail for the last 5 minutes, after an hour of health: 5 of 60 minutes fail, 83 times the budget."""
    minutes = {age: (0, 100) if age <= 5 else (100, 0) for age in range(361)}
    status = judge(SUCCESS, history(minutes, dict.fromkeys(range(1, 73), (6000, 0)) | {0: (2500, 600)}))
    assert status.windows["5m"].burn_rate == pytest.approx(1000)
    assert status.windows["1h"].burn_rate == pytest.approx(6 / 61 * 1000)
    assert status.state == "page"
    assert [rule.long for rule in status.firing] == ["1h", "6h", "3d"]


def test_an_alert_ends_soon_after_the_trouble() -> None:
    """The same outage, over for 6 minutes: the long window still burns, the short one does not."""
    minutes = {age: (0, 100) if 6 <= age <= 11 else (100, 0) for age in range(61)}
    status = judge(SUCCESS, history(minutes))
    assert status.windows["1h"].burn_rate == pytest.approx(6 / 61 * 1000)
    assert status.windows["5m"].burn_rate == 0
    assert not any(rule.short == "5m" for rule in status.firing)


def test_a_slow_burn_makes_a_ticket() -> None:
    """0.2 % fail all the time: twice the budget, which no page looks at."""
    status = judge(SUCCESS, history(dict.fromkeys(range(361), (998, 2)), dict.fromkeys(range(73), (59_880, 120))))
    assert all(window.burn_rate == pytest.approx(2) for window in status.windows.values())
    assert (status.state, [rule.severity for rule in status.firing]) == ("ticket", ["ticket"])
    assert status.budget_left == pytest.approx(-1)


def test_failures_within_the_target_raise_no_alert() -> None:
    status = judge(SUCCESS, history(dict.fromkeys(range(361), (1998, 1)), dict.fromkeys(range(73), (119_880, 60))))
    assert (status.state, status.firing) == ("ok", ())


@pytest.mark.parametrize(
    ("rates", "long"),
    [
        ({"1h": 14.5, "5m": 14.5}, ["1h"]),
        ({"1h": 14.4, "5m": 14.5}, []),
        ({"1h": 14.5, "5m": 14.4}, []),
        ({"1h": 14.5, "5m": None}, []),
        ({"6h": 6.1, "30m": 6.1}, ["6h"]),
        ({"6h": 6.1, "30m": 6.1, "3d": 1.1}, ["6h", "3d"]),
        ({"3d": 1.1, "6h": 0.9}, []),
        ({}, []),
    ],
)
def test_an_alert_needs_both_windows(rates: dict[str, float | None], long: list[str]) -> None:
    assert [rule.long for rule in firing_rules(rates)] == long


def test_objectives_are_judged_apart() -> None:
    found = history({0: (0, 10)})
    other = Objective(target=0.9, queue="another")
    assert [status.state for status in judge_all([SUCCESS, other], found)] == ["page", "no data"]
