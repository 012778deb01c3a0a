"""Schedules in code: registered on import, written when a worker starts, disabled when the code no longer declares
them."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from relier import Cron, ScheduleDefinitionError, Schedules, rl_task, schedule
from relier.engines.startup import check_schedules
from relier.schedules import declared
from relier.schedules.declared import declare_all, declared_schedules
from tests.support.crew import Crew, until
from tests.support.keyrings import keys_setting

pytestmark = pytest.mark.anyio


@rl_task(name="dec.report")
def report(day: str = "today") -> str:
    return day


@rl_task(name="dec.other")
def other() -> None: ...


async def start(crew: Crew, origin: str = "app") -> list[str]:
    """Do what a worker does when it starts."""
    return await declare_all(crew.client, crew.client.arun, origin, declared_schedules())


def states() -> dict[str, str]:
    return {info.name: info.state.value for info in Schedules().list()}


def version(crew: Crew, name: str) -> str:
    return str(crew.run(crew.ledger.schedules(name)).schedules[0].version)


async def test_a_start_writes_what_the_code_declares(clocked: Crew) -> None:
    schedule("nightly", report, cron="0 3 * * *", tz="Europe/Paris", args=("monday",))

    @rl_task(name="dec.decorated", schedule="*/5 * * * *")
    def decorated() -> None: ...

    @rl_task(name="dec.object", schedule=Cron("0 4 * * *", tz="Europe/Paris"))
    def with_object() -> None: ...

    assert list(Schedules().list()) == []
    assert await start(clocked) == []
    assert states() == {"nightly": "active", "dec.decorated": "active", "dec.object": "active"}
    assert Schedules().get("nightly").when == "0 3 * * * Europe/Paris"
    assert Schedules().get("nightly").origin == "app"


async def test_a_second_start_changes_nothing(clocked: Crew) -> None:
    schedule("nightly", report, every=60)
    await start(clocked)
    before = version(clocked, "nightly")
    clocked.advance(30)
    await start(clocked)
    assert version(clocked, "nightly") == before


@pytest.mark.parametrize("keys", [{"signing_keys": "k"}, {"encryption_keys": "k"}], ids=str)
async def test_a_start_with_keys_changes_nothing_until_they_are_rotated(clocked: Crew, keys: dict[str, Any]) -> None:
    names = {name: keys_setting("k1") for name in keys}
    clocked.with_settings(**names)
    schedule("nightly", report, every=60)
    await start(clocked)
    before = version(clocked, "nightly")
    await start(clocked)
    assert version(clocked, "nightly") == before
    clocked.with_settings(**{name: keys_setting("k2", "k1") for name in keys})
    await start(clocked)
    assert version(clocked, "nightly") != before, "sealed with the new key, so that the old one can go"


async def test_a_deploy_that_drops_a_schedule_disables_it_and_says_so(
    clocked: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    schedule("nightly", report, every=60)
    schedule("hourly", other, every=3600)
    await start(clocked)
    Schedules().create("made by hand", report, every=60)
    del declared._declared["hourly"]
    with caplog.at_level(logging.WARNING):
        assert await start(clocked) == ["hourly"]
    assert "disabled schedules that the code of app no longer declares: hourly" in caplog.text
    assert states() == {"nightly": "active", "hourly": "disabled", "made by hand": "active"}
    assert await start(clocked, "another app") == []
    schedule("hourly", other, every=3600)
    await start(clocked)
    assert states()["hourly"] == "active"


async def test_the_last_start_wins(clocked: Crew) -> None:
    schedule("nightly", report, every=60)
    await start(clocked, "v1")
    schedule("nightly", report, every=90)
    await start(clocked, "v2")
    assert (Schedules().get("nightly").when, Schedules().get("nightly").origin) == ("every 90 s", "v2")
    del declared._declared["nightly"]
    assert await start(clocked, "v1") == []
    assert await start(clocked, "v2") == ["nightly"]


async def test_a_paused_schedule_stays_paused_through_deploys(clocked: Crew, caplog: pytest.LogCaptureFixture) -> None:
    schedule("nightly", report, every=60)
    await start(clocked)
    Schedules().pause("nightly")
    schedule("nightly", report, every=90)
    await start(clocked)
    assert states() == {"nightly": "paused"}
    assert "schedule nightly is paused and does not run" in caplog.text
    assert Schedules().resume("nightly").when == "every 90 s"


async def test_a_schedule_created_at_run_time_is_not_taken_over(
    clocked: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    Schedules().create("nightly", other, every=60)
    schedule("nightly", report, every=60)
    schedule("hourly", report, every=60)
    await start(clocked)
    assert Schedules().get("nightly").task == "dec.other"
    assert "schedule 'nightly' was not declared: somebody at run time created it" in caplog.text
    assert states()["hourly"] == "active", "the others are declared"


async def test_a_time_that_is_over_is_declared_as_ended(clocked: Crew, caplog: pytest.LogCaptureFixture) -> None:
    schedule("party", report, at=datetime(2020, 1, 1, tzinfo=UTC))
    await start(clocked)
    assert states() == {"party": "ended"}
    assert "schedule party has no time after now" in caplog.text


def test_two_tasks_under_one_name_are_refused() -> None:
    schedule("nightly", report, every=60)
    schedule("nightly", report, every=90)  # a module that is imported again
    with pytest.raises(ScheduleDefinitionError, match="two schedules have the name 'nightly'"):
        schedule("nightly", other, every=60)


def test_wrong_input_is_refused_where_it_is_written() -> None:
    with pytest.raises(ScheduleDefinitionError, match=r"do not fit the task dec\.report"):
        schedule("nightly", report, every=60, kwargs={"month": 1})
    with pytest.raises(ScheduleDefinitionError, match="must be a function with @rl_task"):
        schedule("nightly", len, every=60)
    with pytest.raises(ScheduleDefinitionError, match="invalid"):

        @rl_task(name="dec.bad", schedule="at noon")
        def bad() -> None: ...

    with pytest.raises(ScheduleDefinitionError, match="must be a cron expression"):

        @rl_task(name="dec.worse", schedule=60)  # type: ignore[call-overload]
        def worse() -> None: ...

    assert declared_schedules() == []


def test_a_worker_does_not_start_with_a_schedule_that_cannot_run() -> None:
    @rl_task(name="dec.needs", schedule="0 3 * * *")
    def needs(day: str) -> None: ...

    with pytest.raises(ScheduleDefinitionError, match=r"do not fit the task dec\.needs"):
        check_schedules()


async def test_a_worker_declares_and_fires(crew: Crew) -> None:
    schedule("often", other, every=1)
    async with crew.working(modules=("dec",)):
        await until(lambda: crew.count("done") >= 1, what="the first run")
    info = Schedules().get("often")
    assert (info.origin, info.history[-1].outcome) == ("dec", "fired")
    Schedules().remove("often")


async def test_a_paused_schedule_stays_paused_through_a_release_without_it(clocked: Crew) -> None:
    schedule("nightly", report, every=60)
    await start(clocked)
    Schedules().pause("nightly")
    spec = declared._declared.pop("nightly")
    assert await start(clocked) == []
    assert states() == {"nightly": "paused"}
    declared._declared["nightly"] = spec
    await start(clocked)
    assert states() == {"nightly": "paused"}
