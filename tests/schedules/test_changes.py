"""Creating, editing, pausing, removing and running schedules, blocking and on an event loop, on a clock that the test
sets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from relier import (
    AsyncSchedules,
    At,
    Cron,
    Every,
    ScheduleConflictError,
    ScheduleDefinitionError,
    ScheduleNotFoundError,
    Schedules,
    rl_task,
)
from relier.errors import InvalidSubmissionError
from relier.ledger.schedule_records import DECLARE, MAX_DEFINITION_BYTES
from relier.rescue.phoenix import Phoenix
from relier.schedules.definition import run_id
from relier.schedules.spec import spec_of
from tests.support.crew import Crew
from tests.support.keyrings import keys_setting

pytestmark = pytest.mark.anyio


@rl_task(name="sch.report", queue="reports", priority=3)
def report(day: str = "today", *, copies: int = 1) -> str:
    return f"{day} {copies}"


@rl_task(name="sch.once", idempotent=True, idempotency_ttl=3600)
def once(day: str = "today") -> str:
    return day


async def sweep(crew: Crew) -> None:
    await Phoenix(crew.client.settings, crew.client.store, crew.ledger, keyring=crew.client.keyring).sweep_once()


def queued(crew: Crew, queue: str = "reports") -> list[str]:
    return [record.id for record in crew.run(crew.ledger.list("ready", queue)).records]


def outcomes(name: str = "s") -> list[str]:
    return [entry.outcome for entry in Schedules().get(name).history]


def next_ms(name: str = "s") -> int:
    at = Schedules().get(name).next
    assert at is not None
    return round(1000 * at.timestamp())


async def test_a_schedule_fires_its_task_with_its_arguments(clocked: Crew) -> None:
    info = Schedules().create("s", report, every=60, args=("monday",), kwargs={"copies": 2}, priority=5)
    assert (info.state, info.task, info.when, info.queue, info.priority) == (
        "active",
        "sch.report",
        "every 1 min",
        "reports",
        5,
    )
    intended = next_ms()
    await sweep(clocked)
    assert queued(clocked) == []
    clocked.clock.set(intended * 1000)
    await sweep(clocked)
    (task_id,) = queued(clocked)
    found = clocked.get(task_id)
    assert found.record.name == "sch.report"
    assert found.record.spec.priority == 5
    assert report.sync_receipt(task_id).id == task_id
    assert task_id[:12] == f"{intended:012x}", "ids sort by intended time"
    assert Schedules().get("s").last_task_id == task_id
    assert next_ms() == intended + 60_000
    await sweep(clocked)
    assert queued(clocked) == [task_id]
    assert b'[["monday"],{"copies":2}]' in (found.payload or b"")


async def test_schedules_and_async_schedules_do_the_same(clocked: Crew) -> None:
    schedules = AsyncSchedules()
    made = await schedules.create("s", report, cron="0 3 * * *", tz="Europe/Paris")
    assert made == await schedules.get("s") == Schedules().get("s")
    assert list(await schedules.list()) == list(Schedules().list())
    assert (await schedules.pause("s")).state == "paused"
    assert (await schedules.resume("s")).state == "active"
    assert list(await schedules.next_times("s", 3)) == list(Schedules().next_times("s", 3))
    receipt = await schedules.run_now("s")
    assert queued(clocked) == [receipt.id]
    await schedules.remove("s")
    with pytest.raises(ScheduleNotFoundError):
        await schedules.get("s")


async def test_next_times_begin_with_the_stored_one(clocked: Crew) -> None:
    Schedules().create("s", report, every=60)
    times = Schedules().next_times("s", 3)
    assert times[0] == Schedules().get("s").next
    assert [later - earlier for earlier, later in pairwise(times)] == [timedelta(minutes=1)] * 2
    Schedules().pause("s")
    assert list(Schedules().next_times("s", 3)) == list(times), "when it would run if it were active"


# --- edits -------------------------------------------------------------------------------------------------------


async def test_an_edit_never_fires_past_times(clocked: Crew) -> None:
    Schedules().create("s", report, every=3600)
    clocked.advance(1800)
    Schedules().create("s", report, every=60)
    assert next_ms() > clocked.clock.now_us // 1000
    await sweep(clocked)
    assert queued(clocked) == []


async def test_an_edit_first_fires_what_was_due_under_the_old_definition(clocked: Crew) -> None:
    Schedules().create("s", report, every=60, args=("old",))
    intended = next_ms()
    clocked.clock.set((intended + 5) * 1000)
    Schedules().create("s", report, every=60, args=("new",))
    (task_id,) = queued(clocked)
    assert task_id[:12] == f"{intended:012x}"
    assert b'"old"' in (clocked.get(task_id).payload or b"")
    await sweep(clocked)
    assert queued(clocked) == [task_id]
    assert next_ms() == intended + 60_000


async def test_an_edit_fires_every_due_run_of_the_old_version(clocked: Crew) -> None:
    Schedules().create("s", report, every=60, catch_up="all")
    clocked.clock.set((next_ms() + 49 * 60_000) * 1000)
    Schedules().create("s", report, every=90)
    assert len(queued(clocked)) == 50
    assert len(set(queued(clocked))) == 50


async def test_creating_the_same_schedule_again_changes_nothing(clocked: Crew) -> None:
    first = Schedules().create("s", report, every=60)
    version = clocked.run(clocked.ledger.schedules("s")).schedules[0].version
    clocked.advance(7)
    assert Schedules().create("s", report, every=60) == first
    assert clocked.run(clocked.ledger.schedules("s")).schedules[0].version == version


async def test_a_paused_schedule_stays_paused_when_it_is_edited(clocked: Crew) -> None:
    Schedules().create("s", report, every=60)
    Schedules().pause("s")
    assert Schedules().create("s", report, every=90).state == "paused"
    clocked.advance(600)
    await sweep(clocked)
    assert queued(clocked) == []
    assert Schedules().resume("s").when == "every 90 s"
    await sweep(clocked)
    assert queued(clocked) == [], "what was due while it was paused does not run"


async def test_two_operators_pause_at_once(clocked: Crew) -> None:
    Schedules().create("s", report, every=60)
    assert Schedules().pause("s") == Schedules().pause("s")


async def test_a_schedule_that_code_declares_is_not_edited_at_run_time(clocked: Crew) -> None:
    raw = spec_of("s", report, {"every": 60}).definition(clocked.client.settings, clocked.client.keyring).encoded()
    later = clocked.clock.now_us // 1000 + 60_000
    clocked.run(clocked.ledger.schedule("s", DECLARE, raw, later, origin="shop.tasks"))
    with pytest.raises(ScheduleConflictError, match=r"the code of shop\.tasks declares it"):
        Schedules().create("s", report, every=90)
    assert Schedules().pause("s").origin == "shop.tasks"


# --- catching up, overlap, duplicates ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "runs", "history"),
    [
        ({}, 1, ["fired", "missed"]),
        ({"catch_up": "latest"}, 1, ["fired", "missed"]),
        ({"catch_up": "latest", "grace": 10}, 0, ["missed"]),
        ({"catch_up": "skip"}, 1, ["fired", "missed"]),
        ({"catch_up": "skip", "grace": timedelta(seconds=10)}, 0, ["missed"]),
        ({"catch_up": "all"}, 6, ["fired"] * 6),
        ({"catch_up": "all", "catch_up_limit": 2}, 2, ["fired", "fired", "missed"]),
        ({"catch_up": "all", "overlap": "skip"}, 1, ["skipped_overlap"] * 5 + ["fired"]),
    ],
    ids=str,
)
async def test_occurrences_missed_in_an_outage_are_caught_up(
    clocked: Crew, options: dict[str, Any], runs: int, history: list[str]
) -> None:
    Schedules().create("s", report, every=60, **options)
    clocked.clock.set((next_ms() + 330_000) * 1000)
    await sweep(clocked)
    assert len(queued(clocked)) == runs
    assert outcomes() == history
    await sweep(clocked)
    assert len(queued(clocked)) == runs


async def test_overlap_skip_waits_for_the_end_of_the_last_run(clocked: Crew) -> None:
    Schedules().create("s", report, every=60, overlap="skip", queue="default")
    boot = clocked.join()
    for expected in (1, 1):  # waiting, then running
        clocked.clock.set(next_ms() * 1000)
        await sweep(clocked)
        assert clocked.count("submitted") == expected
    lease = clocked.start(boot)
    clocked.clock.set(next_ms() * 1000)
    await sweep(clocked)
    assert clocked.count("submitted") == 1
    assert outcomes() == ["skipped_overlap", "skipped_overlap", "fired"]
    assert clocked.commit(lease) == "ok"
    clocked.clock.set(next_ms() * 1000)
    await sweep(clocked)
    assert clocked.count("submitted") == 2


async def test_a_run_whose_idempotency_key_is_held_is_recorded_as_a_duplicate(clocked: Crew) -> None:
    held = once.push()
    Schedules().create("s", once, every=60)
    clocked.clock.set(next_ms() * 1000)
    await sweep(clocked)
    assert queued(clocked, "default") == [held.id]
    (entry,) = Schedules().get("s").history
    assert (entry.outcome, entry.task_id) == ("duplicate", held.id)


async def test_a_schedule_with_one_time_ends_after_its_run(clocked: Crew) -> None:
    when = datetime.fromtimestamp(clocked.clock.now_us / 1e6 + 30, UTC)
    Schedules().create("s", report, at=when)
    clocked.advance(31)
    await sweep(clocked)
    assert len(queued(clocked)) == 1
    info = Schedules().get("s")
    assert (info.state, info.next) == ("ended", None)
    with pytest.raises(ScheduleDefinitionError, match="was not resumed"):
        Schedules().resume("s")
    assert list(Schedules().next_times("s")) == []


async def test_run_now_changes_nothing_about_the_schedule(clocked: Crew) -> None:
    before = Schedules().create("s", report, every=60, overlap="skip")
    receipt = Schedules().run_now("s")
    assert queued(clocked) == [receipt.id]
    assert Schedules().get("s") == before


# --- keys --------------------------------------------------------------------------------------------------------


async def test_a_definition_is_signed_and_encrypted_with_the_keys_of_the_namespace(clocked: Crew) -> None:
    clocked.with_settings(signing_keys=keys_setting("s1"), encryption_keys=keys_setting("e1"))
    Schedules().create("s", report, every=60, args=("secret words",))
    version = clocked.run(clocked.ledger.schedules("s")).schedules[0].version
    assert b"secret words" not in clocked.run(clocked.ledger.schedules("s")).schedules[0].definition
    Schedules().create("s", report, every=60, args=("secret words",))
    assert clocked.run(clocked.ledger.schedules("s")).schedules[0].version == version, "the same, sealed anew"
    clocked.clock.set(next_ms() * 1000)
    await sweep(clocked)
    (task_id,) = queued(clocked)
    assert clocked.get(task_id).record.id == run_id(clocked.client.settings.namespace, "s", version, next_ms() - 60_000)


async def test_a_forged_definition_is_not_fired(clocked: Crew, caplog: pytest.LogCaptureFixture) -> None:
    """Someone who can write to the store but has no key cannot get the scheduler to sign a task."""
    forged = spec_of("s", report, {"every": 60}).definition(clocked.client.settings, clocked.client.keyring)
    clocked.with_settings(signing_keys=keys_setting("s1"))
    later = clocked.clock.now_us // 1000 + 60_000
    clocked.run(clocked.ledger.schedule("s", "0", forged.encoded(), later))
    Schedules().create("other", report, every=60)
    clocked.advance(120)
    await sweep(clocked)
    assert len(queued(clocked)) == 1
    assert "schedule s is due, but this process cannot fire it" in caplog.text
    assert "is not signed" in caplog.text


# --- wrong input -------------------------------------------------------------------------------------------------

PAST = datetime(2020, 1, 1, tzinfo=UTC)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no time": ({}, "exactly one of cron, every, at or when"),
    "two times": ({"cron": "* * * * *", "every": 5}, "exactly one of"),
    "a bad expression": ({"cron": "never"}, "cron expression 'never' is invalid"),
    "an unknown zone": ({"cron": "* * * * *", "tz": "Mars"}, "no time zone 'Mars'"),
    "a zone without cron": ({"every": 5, "tz": "UTC"}, "tz can only be combined with cron"),
    "a naive datetime": ({"at": datetime(2030, 1, 1)}, "with a time zone"),  # noqa: DTZ001
    "a time that is over": ({"at": PAST}, "has no time after now"),
    "an unknown argument": ({"every": 5, "kwargs": {"dya": 1}}, "do not fit the task sch.report"),
    "too many arguments": ({"every": 5, "args": (1, 2, 3)}, "do not fit the task"),
    "a value that cannot be stored": ({"every": 5, "args": (object(),)}, "do not fit the task"),
    "an unknown option": ({"every": 5, "catchup": "all"}, "did you mean catch_up"),
    "an unknown rule": ({"every": 5, "catch_up": "some"}, "catch_up must be"),
    "no limit": ({"every": 5, "catch_up_limit": 0}, "catch_up_limit must be"),
    "an unknown overlap": ({"every": 5, "overlap": "no"}, "overlap must be"),
    "a bad priority": ({"every": 5, "priority": 12}, "priority must be"),
    "an odd timing": ({"when": 7}, "must be a cron expression"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_wrong_input_is_refused_when_it_is_written(clocked: Crew, case: str) -> None:
    options, why = WRONG[case]
    with pytest.raises(ScheduleDefinitionError, match=why):
        Schedules().create("s", report, **options)
    assert list(Schedules().list()) == []


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 300, None])
async def test_a_bad_name_is_refused(clocked: Crew, name: Any) -> None:
    with pytest.raises((ScheduleDefinitionError, InvalidSubmissionError)):
        Schedules().create(name, report, every=5)


async def test_a_large_definition_is_refused(clocked: Crew) -> None:
    with pytest.raises(ValueError, match="store the data elsewhere"):
        Schedules().create("s", report, every=5, args=("x" * MAX_DEFINITION_BYTES,))


@pytest.mark.parametrize("act", ["get", "pause", "resume", "remove", "run_now", "next_times"])
async def test_an_unknown_schedule_is_reported(clocked: Crew, act: str) -> None:
    doing: Callable[[str], Any] = getattr(Schedules(), act)
    with pytest.raises(ScheduleNotFoundError, match="no schedule 'gone'"):
        doing("gone")


@pytest.mark.parametrize(
    "when", [Cron("0 3 * * *"), Every(5), At(datetime(2050, 1, 1, tzinfo=UTC)), "* * * * *"], ids=str
)
async def test_a_timing_can_be_given_as_an_object(clocked: Crew, when: Any) -> None:
    assert Schedules().create("s", report, when=when).next is not None


async def test_an_entry_of_celery_beat_cannot_be_run_now(clocked: Crew) -> None:
    at = clocked.clock.now_us // 1000 + 60_000
    clocked.run(clocked.ledger.schedule("proj:entry", "0", b"{}", at, group="celery", origin="proj"))
    with pytest.raises(ScheduleConflictError, match="entry of Celery's beat"):
        Schedules().run_now("proj:entry")
    assert clocked.count("submitted") == 0
