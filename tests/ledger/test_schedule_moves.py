"""The moves of schedules on the real scripts: cases that the model does not contain, or that must not depend on it."""

from __future__ import annotations

from typing import Any

import pytest

from relier.errors import InvalidSubmissionError, PayloadTooLargeError, VersionConflictError
from relier.ledger.defaults import DUE_SCHEDULES, FIRES_KEPT
from relier.ledger.schedule_records import (
    DECLARE,
    FIRE_RUNS,
    MAX_DEFINITION_BYTES,
    NEW,
    ScheduleState,
    ScheduleVerdict,
    StoredSchedule,
)
from tests.support.ledger_world import World


def create(world: World, name: str = "s", ahead: int = 1000, **more: Any) -> tuple[str, int]:
    at = world.now + ahead
    answer = world.run(world.ledger.schedule(name, NEW, b"{}", at, **more))
    assert answer.verdict is ScheduleVerdict.OK
    return answer.version, at


def stored(world: World, name: str = "s") -> StoredSchedule:
    (found,) = world.run(world.ledger.schedules(name)).schedules
    return found  # type: ignore[no-any-return]


def due(world: World, **how: Any) -> list[str]:
    return [each.name for each in world.run(world.ledger.promote(**how)).schedules]


def test_a_firing_enters_its_task_and_advances(clocked: World) -> None:
    version, at = create(clocked)
    clocked.advance(1500)
    assert due(clocked) == ["s"]
    task = clocked.new(queue="q")
    answer = clocked.run(clocked.ledger.fire("s", version, at, at + 1000, [(at, task)]))
    assert (answer.verdict, answer.outcomes) == ("ok", (("fired", task.id),))
    assert clocked.state(task.id) == "queued"
    assert clocked.command("LLEN", clocked.key("bell", "q")) == 1, "it rings"
    assert (stored(clocked).next_ms, stored(clocked).last, stored(clocked).fired_ms) == (at + 1000, task.id, at)
    with clocked.unchanged():
        again = clocked.run(clocked.ledger.fire("s", version, at, at + 1000, [(at, task)]))
        assert (again.verdict, again.next_ms) == ("stale", at + 1000)


def test_a_version_is_unique_also_after_a_rollback(clocked: World) -> None:
    first, _ = create(clocked)
    clocked.command("DEL", clocked.key("schedule", "s"), clocked.key("schedules", "native"))
    clocked.advance(1)
    second, _ = create(clocked)
    assert int(second) > int(first)
    assert len(first) == len(second) == 16


def test_the_history_keeps_the_last_firings(clocked: World) -> None:
    version, at = create(clocked)
    clocked.advance(100_000)
    for n in range(FIRES_KEPT + 5):
        runs = [(at + n, clocked.new())]
        clocked.run(clocked.ledger.fire("s", version, at + n, at + n + 1, runs, missed=n % 2))
    fires = stored(clocked).fires
    assert len(fires) == FIRES_KEPT
    assert fires[0].intended_ms == at + FIRES_KEPT + 4
    assert {fire.outcome for fire in fires} == {"fired", "missed"}
    assert len(clocked.run(clocked.ledger.schedules("s", fires=1)).schedules[0].fires) == 1


def test_promote_corrects_an_index_that_does_not_fit(clocked: World) -> None:
    """An entry that would be due forever is removed, and the other schedules are found."""
    for name in ("gone", "paused", "other", "odd", "sound"):
        create(clocked, name)
    clocked.command("DEL", clocked.key("schedule", "gone"))
    clocked.command("HSET", clocked.key("schedule", "paused"), "state", "paused")
    clocked.command("HSET", clocked.key("schedule", "other"), "group", "celery")
    clocked.command("DEL", clocked.key("schedule", "odd"))
    clocked.command("SET", clocked.key("schedule", "odd"), "x")
    clocked.advance(2000)
    assert due(clocked) == ["sound"]
    index = clocked.members("schedules", "native")
    assert index == ["sound", "paused"]
    assert clocked.command("ZSCORE", clocked.key("schedules", "native"), "paused") == b"inf"
    assert clocked.counts()["strays"] == 4
    with clocked.unchanged():
        assert due(clocked) == ["sound"]


def test_a_page_names_unreadable_schedules(clocked: World) -> None:
    create(clocked, "sound")
    create(clocked, "broken")
    clocked.command("HDEL", clocked.key("schedule", "broken"), "definition")
    page = clocked.run(clocked.ledger.schedules())
    assert [each.name for each in page.schedules] == ["sound"]
    assert page.unreadable == ("broken",)
    assert clocked.run(clocked.ledger.schedules("broken")).unreadable == ("broken",)
    assert clocked.run(clocked.ledger.schedules("none")).unreadable == ()


def test_all_due_schedules_are_found_in_several_calls(clocked: World) -> None:
    for n in range(DUE_SCHEDULES + 3):
        create(clocked, f"s{n:02}", 1000 + n)
    clocked.advance(5000)
    assert due(clocked) == [f"s{n:02}" for n in range(DUE_SCHEDULES)]
    assert due(clocked, skip_schedules=DUE_SCHEDULES) == [f"s{n:02}" for n in range(DUE_SCHEDULES, DUE_SCHEDULES + 3)]
    assert due(clocked, skip_schedules=99) == []


def test_the_next_due_time_includes_schedules(clocked: World) -> None:
    create(clocked, ahead=4000)
    clocked.push(delay_ms=9000)
    assert clocked.run(clocked.ledger.promote()).next_due_ms == clocked.now + 4000
    create(clocked, "celery's", 2000, group="celery")
    assert clocked.run(clocked.ledger.promote()).next_due_ms == clocked.now + 4000
    clocked.push(delay_ms=1000)
    assert clocked.run(clocked.ledger.promote()).next_due_ms == clocked.now + 1000
    assert clocked.run(clocked.ledger.promote(0, group="celery")).next_due_ms == clocked.now + 2000


def test_each_group_finds_its_own_due_schedules(clocked: World) -> None:
    create(clocked)
    create(clocked, "celery's", 1000, group="celery")
    clocked.push(delay_ms=1000)
    clocked.advance(1500)
    found = clocked.run(clocked.ledger.promote(0, group="celery"))
    assert [each.name for each in found.schedules] == ["celery's"]
    assert found.count == 0
    assert due(clocked) == ["s"]


def test_a_new_schedule_does_not_repeat_firings_of_a_removed_one(clocked: World) -> None:
    version, at = create(clocked)
    clocked.advance(1500)
    clocked.run(clocked.ledger.fire("s", version, at, at + 1000, [(at, clocked.new())]))
    clocked.run(clocked.ledger.unschedule("s", version))
    clocked.advance(-1000)
    late = clocked.run(clocked.ledger.schedule("s", NEW, b"{}", at))
    assert (late.verdict, late.floor_ms) == ("late", at)
    assert clocked.run(clocked.ledger.schedule("s", NEW, b"{}", at + 1)).verdict == "ok"


def test_removing_removes_everything(clocked: World) -> None:
    before = clocked.dump()
    version, at = create(clocked)
    clocked.advance(1500)
    clocked.run(clocked.ledger.fire("s", version, at, at + 1000, [], missed=1))
    with pytest.raises(VersionConflictError):
        clocked.run(clocked.ledger.unschedule("s", "1"))
    assert clocked.run(clocked.ledger.unschedule("s", version)) is True
    assert clocked.run(clocked.ledger.unschedule("s", version)) is False
    assert clocked.dump().keys() - {"ev:schedules", "evn:schedules"} == before.keys()


WRONG: dict[str, Any] = {
    "active without a time": lambda ledger: ledger.schedule("s", NEW, b"{}", None),
    "paused with a time": lambda ledger: ledger.schedule("s", NEW, b"{}", 1, state=ScheduleState.PAUSED),
    "no name": lambda ledger: ledger.schedule("", NEW, b"{}", 1),
    "no version": lambda ledger: ledger.schedule("s", "", b"{}", 1),
    "a next time that does not advance": lambda ledger: ledger.fire("s", "1", 5, 5, []),
    "too many runs": lambda ledger: ledger.fire("s", "1", 1, 99, [(1, None)] * (FIRE_RUNS + 1)),
    "too many firings": lambda ledger: ledger.schedules(fires=99),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_reach_no_script(clocked: World, case: str) -> None:
    with pytest.raises(InvalidSubmissionError):
        WRONG[case](clocked.ledger)


def test_runs_out_of_order_are_refused(clocked: World) -> None:
    one, two = clocked.new(), clocked.new()
    with pytest.raises(InvalidSubmissionError, match="in the order"):
        clocked.ledger.fire("s", "1", 1, 9, [(3, one), (2, two)])


def test_a_run_with_a_delay_waits(clocked: World) -> None:
    version, at = create(clocked)
    clocked.advance(1500)
    run = clocked.new(delay_ms=5000)
    clocked.run(clocked.ledger.fire("s", version, at, at + 9000, [(at, run)]))
    assert clocked.run(clocked.ledger.get(run.id)).record.state == "scheduled"


def test_a_large_definition_is_refused(clocked: World) -> None:
    with pytest.raises(PayloadTooLargeError, match="nothing was written"):
        clocked.ledger.schedule("s", DECLARE, b"x" * (MAX_DEFINITION_BYTES + 1), 1)
