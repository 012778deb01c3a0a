"""Which due occurrences run: skip, latest and all, within grace and limits."""

from __future__ import annotations

from relier.ledger.schedule_records import FIRE_RUNS
from relier.schedules.planning import CatchUpRule, FirePlan, plan_fire
from relier.schedules.timings import Cron, Every, Timing

MINUTE = 60_000
BASE = 1_800_000_000_000  # a whole minute
TIMINGS: tuple[Timing, ...] = (Every(60), Cron("* * * * *"))


def plans(rule: CatchUpRule, late_ms: int, most: int = FIRE_RUNS) -> FirePlan:
    """Plan a schedule of every minute whose first due time was `late_ms` ago. Cron and every agree."""
    found = {plan_fire(timing, rule, BASE, BASE + late_ms, most) for timing in TIMINGS}
    assert len(found) == 1
    return found.pop()


def minutes(*numbers: int) -> tuple[int, ...]:
    return tuple(BASE + n * MINUTE for n in numbers)


def test_a_due_occurrence_runs_under_every_rule() -> None:
    for kind in ("skip", "latest", "all"):
        for late in (0, 400, MINUTE - 1):
            assert plans(CatchUpRule(kind), late) == FirePlan(minutes(0), 0, BASE + MINUTE)


def test_latest_runs_only_the_newest_occurrence() -> None:
    assert plans(CatchUpRule(), 5 * MINUTE + 1) == FirePlan(minutes(5), 5, BASE + 6 * MINUTE)


def test_latest_runs_nothing_later_than_its_grace() -> None:
    rule = CatchUpRule("latest", grace_ms=10_000)
    assert plans(rule, 5 * MINUTE + 10_000) == FirePlan(minutes(5), 5, BASE + 6 * MINUTE)
    assert plans(rule, 5 * MINUTE + 10_001) == FirePlan((), 6, BASE + 6 * MINUTE)


def test_skip_runs_no_occurrence_later_than_its_grace() -> None:
    assert plans(CatchUpRule("skip"), 60_000) == FirePlan(minutes(0, 1), 0, BASE + 2 * MINUTE)
    assert plans(CatchUpRule("skip"), 60_001) == FirePlan(minutes(1), 1, BASE + 2 * MINUTE)
    assert plans(CatchUpRule("skip"), 5 * MINUTE + 30_000) == FirePlan(minutes(5), 5, BASE + 6 * MINUTE)
    rule = CatchUpRule("skip", grace_ms=1000)
    assert plans(rule, 5 * MINUTE + 30_000) == FirePlan((), 6, BASE + 6 * MINUTE)


def test_all_runs_every_occurrence_oldest_first() -> None:
    assert plans(CatchUpRule("all"), 3 * MINUTE) == FirePlan(minutes(0, 1, 2, 3), 0, BASE + 4 * MINUTE)


def test_all_runs_the_newest_up_to_its_limit() -> None:
    rule = CatchUpRule("all", limit=3)
    assert plans(rule, 2 * MINUTE) == FirePlan(minutes(0, 1, 2), 0, BASE + 3 * MINUTE)
    assert plans(rule, 3 * MINUTE) == FirePlan(minutes(1, 2, 3), 1, BASE + 4 * MINUTE)
    assert plans(rule, 9 * MINUTE) == FirePlan(minutes(7, 8, 9), 7, BASE + 10 * MINUTE)


def test_all_runs_nothing_later_than_its_grace() -> None:
    rule = CatchUpRule("all", grace_ms=2 * MINUTE)
    assert plans(rule, 9 * MINUTE) == FirePlan(minutes(7, 8, 9), 7, BASE + 10 * MINUTE)


def test_one_call_runs_some_and_the_next_time_is_the_first_left_over() -> None:
    rule = CatchUpRule("all", limit=100)
    first = plans(rule, 149 * MINUTE)
    assert first == FirePlan(minutes(*range(50, 70)), 50, BASE + 70 * MINUTE)
    assert first.next_ms is not None
    second = plan_fire(TIMINGS[0], rule, first.next_ms, BASE + 150 * MINUTE)
    assert second == FirePlan(minutes(*range(70, 90)), 0, BASE + 90 * MINUTE)


def test_a_stored_time_that_the_timing_no_longer_has_still_runs() -> None:
    """The time zone database changed after the schedule was stored: the stored time still counts."""
    assert plan_fire(Every(60), CatchUpRule(), BASE + 7, BASE + 10) == FirePlan((BASE + 7,), 0, BASE + MINUTE)
    assert plan_fire(Every(60), CatchUpRule("all"), BASE + 7, BASE + MINUTE) == FirePlan(
        (BASE + 7, BASE + MINUTE), 0, BASE + 2 * MINUTE
    )
