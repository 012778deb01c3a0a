"""Rolling deploys: payloads that older code pushed, payloads for newer code, and tasks that a deploy could not run."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from relier import ConfigurationError, Retries, RlTask, SchemaMigrationError, Settings, TaskDeadError, registry, rl_task
from relier.codec.keyring import NO_KEYS
from relier.envelope import reseal, seal
from relier.failure import read_failure
from relier.ledger import keys
from relier.ledger.records import Submission, Task, new_task_id
from relier.options import TaskOptions
from relier.states import State
from tests.support import ROOT
from tests.support.crew import QUICK, Crew, environment, until

pytestmark = pytest.mark.anyio


@rl_task(name="billing.charge", schema_version=3)
def charge(customer: str, cents: int, *, currency: str) -> str:
    return f"{customer} {cents} {currency}"


@charge.migration(from_version=1)
def in_cents(payload: dict[str, Any]) -> dict[str, Any]:
    customer, euros = payload["args"]
    return {"args": [customer, round(100 * euros)], "kwargs": payload["kwargs"]}


@charge.migration(from_version=2)
def with_currency(payload: dict[str, Any]) -> dict[str, Any]:
    payload["kwargs"].setdefault("currency", "EUR")
    return payload


def of_version(task: RlTask[Any, Any], version: int) -> RlTask[Any, Any]:
    """Push the task as code of that version would."""
    return RlTask(lambda *args, **kwargs: None, TaskOptions(name=task.name, schema_version=version))


async def died(crew: Crew, task_id: str) -> Task:
    await until(lambda: crew.get(task_id).record.state is State.DEAD, what="a dead letter")
    return crew.get(task_id)


# --- the way up --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "args", "kwargs"),
    [(1, ("ann", 50), {}), (2, ("ann", 5000), {}), (3, ("ann", 5000), {"currency": "EUR"})],
)
async def test_migrations_are_applied_in_sequence(
    crew: Crew, version: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    receipt = of_version(charge, version).push(*args, **kwargs)
    async with crew.working():
        assert await charge.receipt(receipt.id).result(10) == "ann 5000 EUR"


async def test_a_migration_sees_values_as_they_were_pushed(crew: Crew) -> None:
    from datetime import date
    from decimal import Decimal

    @rl_task(name="typed", schema_version=2)
    def typed(when: date, amount: Decimal) -> str:
        return f"{when:%d.%m.} {amount * 2}"

    @typed.migration(from_version=1)
    def add(payload: dict[str, Any]) -> dict[str, Any]:
        when, amount = payload["args"]
        assert isinstance(when, date)
        return {"args": (when.replace(day=1), amount + 1), "kwargs": {}}

    receipt = of_version(typed, 1).push(date(2026, 5, 17), Decimal("0.5"))
    async with crew.working():
        assert await typed.receipt(receipt.id).result(10) == "01.05. 3.0"


async def test_an_isolated_task_is_migrated_in_its_process(crew: Crew) -> None:
    from tests.support.jobs import schema_versions as deployed

    receipt = of_version(deployed.apart, 1).push(20)
    async with crew.working(modules=("tests.support.jobs.schema_versions",)):
        assert await deployed.apart.receipt(receipt.id).result(20) == 42


# --- a signature that changed without a version --------------------------------------------------------------------


async def test_a_task_pushed_by_other_code_says_so_and_how_to_replay_it(crew: Crew) -> None:
    ran = []

    @rl_task(name="resigned")
    def resigned(customer: str, cents: int) -> None:
        ran.append(customer)

    receipt = of_version(resigned, 1).push("ann", euros=5)
    async with crew.working():
        dead = await died(crew, receipt.id)
        failure = read_failure(dead.history[-1].detail)
        assert (dead.record.reason, ran) == ("TypeError", [])
        assert failure.message.endswith(
            f"missing a required argument: 'cents': the task was pushed by other code, with a different signature; "
            f"replay it with arguments that fit: `rl dlq replay {receipt.id} --payload FILE`; for the next change, use "
            f"schema_version and a migration"
        )
        fits = reseal(dead.payload or b"", b'[["ann"], {"cents": 500}]', receipt.id, "resigned", NO_KEYS)
        crew.run(crew.ledger.replay(receipt.id, dead.record.version, new_task_id(), fits))
        await resigned.receipt(receipt.id).result(10)
        assert ran == ["ann"]


async def test_a_task_pushed_by_other_code_is_retried_if_its_options_say_so(crew: Crew) -> None:
    """During a deploy, the next attempt may run on a worker with the other code."""

    @rl_task(name="retried", retries=Retries(attempts=2, backoff=0, jitter=0))
    def retried(customer: str) -> None: ...

    receipt = of_version(retried, 1).push()
    async with crew.working():
        assert [entry.move for entry in (await died(crew, receipt.id)).history] == ["retry", "retry", "bury"]


# --- no way up ---------------------------------------------------------------------------------------------------


async def test_a_missing_migration_makes_a_dead_letter_with_the_original_payload(crew: Crew) -> None:
    @rl_task(name="gappy", schema_version=3)
    def gappy(n: int) -> None: ...

    @gappy.migration(from_version=1)
    def up(payload: dict[str, Any]) -> dict[str, Any]:
        return {"args": [0], "kwargs": {}}

    receipt = of_version(gappy, 1).push(7)
    before = crew.get(receipt.id).payload
    async with crew.working():
        dead = await died(crew, receipt.id)
        assert (dead.record.reason, dead.payload) == ("SchemaMigrationError", before)
        with pytest.raises(
            SchemaMigrationError, match=r"schema version 2, this code wants 3, .*migration\(from_version=2\)"
        ):
            await gappy.receipt(receipt.id).result(5)

        @gappy.migration(from_version=2)
        def on(payload: dict[str, Any]) -> dict[str, Any]:
            return payload

        await gappy.receipt(receipt.id).replay()
        assert await gappy.receipt(receipt.id).result(10) is None, "with the step written, a replay runs it"


def raises(payload: dict[str, Any]) -> dict[str, Any]:
    payload["args"].clear()  # changes to its copy must not matter
    raise KeyError("euros")


def leaves(payload: dict[str, Any]) -> dict[str, Any]:
    sys.exit(3)


BROKEN: list[tuple[Any, str]] = [
    (raises, "the migration from version 1 raised KeyError: 'euros'"),
    (leaves, "the migration from version 1 raised SystemExit: 3"),
    (lambda payload: None, "must return {'args': […], 'kwargs': {…}}, not None"),
    (lambda payload: [], "must return"),
    (lambda payload: {"args": [1]}, "must return"),
    (lambda payload: {"args": "ab", "kwargs": {}}, "must return"),
    (lambda payload: {"args": [], "kwargs": {1: 2}}, "must return"),
    (lambda payload: {"args": [object()], "kwargs": {}}, "cannot be encoded"),
    (lambda payload: {"args": [1, 2], "kwargs": {}}, "takes 1 positional argument but 2 were given"),
    (lambda payload: {"args": [], "kwargs": {"m": 1}}, "missing a required argument: 'n'"),
]


@pytest.mark.parametrize(("step", "why"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
async def test_a_failing_migration_makes_a_dead_letter_with_the_original_payload(
    crew: Crew, step: Any, why: str
) -> None:
    @rl_task(name="broken", schema_version=2, retries=5)
    def broken(n: int) -> None: ...

    broken.migration(from_version=1)(step)
    receipt = of_version(broken, 1).push(7)
    before = crew.get(receipt.id).payload
    async with crew.working():
        dead = await died(crew, receipt.id)
    assert (dead.record.reason, dead.record.attempt, dead.payload) == ("SchemaMigrationError", 1, before)
    assert why in dead.history[-1].detail


@pytest.mark.parametrize("body", [b"[1]", b"5", b"[[],[]]", b"[[],{},3]", b'{"a":1}', b'[{"~":"uuid","v":1},{}]'])
@pytest.mark.parametrize("version", [1, 2])
async def test_a_body_that_is_not_a_call_becomes_a_dead_letter(crew: Crew, body: bytes, version: int) -> None:
    @rl_task(name="sound", schema_version=2)
    def sound() -> str:
        return "sound"

    @sound.migration(from_version=1)
    def up(payload: dict[str, Any]) -> dict[str, Any]:
        return payload

    task_id = new_task_id()
    payload = seal(body, schema_version=version, pushed_ms=1)
    crew.run(crew.ledger.submit([Submission(id=task_id, name="sound", payload=payload)]))
    async with crew.working():
        dead = await died(crew, task_id)
        assert dead.record.reason in {"PayloadEncodingError", "SchemaMigrationError"}
        assert dead.payload == payload
        assert await (await sound.apush()).result(10) == "sound", "the worker goes on"


@pytest.mark.parametrize("version", [0, -1, -(10**12)])
async def test_versions_that_never_existed_are_refused(crew: Crew, version: int) -> None:
    task_id = new_task_id()
    payload = seal(b'[["ann",1],{"currency":"EUR"}]', schema_version=version, pushed_ms=1)
    crew.run(crew.ledger.submit([Submission(id=task_id, name=charge.name, payload=payload)]))
    async with crew.working():
        assert (await died(crew, task_id)).record.reason == "SchemaMigrationError"


@pytest.mark.parametrize("version", [0, 3, 4, -1, True, "1", 1.0, None])
async def test_a_migration_must_start_from_an_older_version(version: Any) -> None:
    """A migration always leads to the next version, so that there can be no loop."""
    with pytest.raises(ConfigurationError, match="from_version must be from 1 to 2"):
        charge.migration(from_version=version)


async def test_only_one_migration_from_a_version_is_allowed() -> None:
    with pytest.raises(ConfigurationError, match="has two migrations from version 1"):
        charge.migration(from_version=1)(lambda payload: payload)


async def test_a_second_migration_from_one_version_is_refused_even_if_prepared_early() -> None:
    @rl_task(name="twice", schema_version=2)
    def twice() -> None: ...

    first, second = twice.migration(from_version=1), twice.migration(from_version=1)
    first(lambda payload: payload)
    with pytest.raises(ConfigurationError, match="has two migrations"):
        second(lambda payload: payload)


async def up_async(payload: dict[str, Any]) -> dict[str, Any]:
    return payload


@pytest.mark.parametrize("step", [None, 5, "up", up_async])
async def test_a_migration_must_be_a_plain_function(step: Any) -> None:
    @rl_task(name="plain", schema_version=2)
    def plain() -> None: ...

    with pytest.raises(ConfigurationError, match="migration"):
        plain.migration(from_version=1)(step)


# --- newer than this worker --------------------------------------------------------------------------------------


async def test_a_payload_of_newer_code_is_put_back_for_a_newer_worker(crew: Crew) -> None:
    @rl_task(name="moving", schema_version=1)
    def old(n: int) -> str:
        return f"ran with {n}"

    receipt = of_version(old, 2).push(1)
    async with crew.working():
        await until(lambda: crew.get(receipt.id).record.state is State.SCHEDULED, what="a put back")
        back = crew.get(receipt.id)
        assert back.record.attempt == 0, "it burnt none"
        assert "schema version 2, this code knows 1" in back.history[-1].detail
        registry.register(RlTask(old.fn, TaskOptions(name="moving", schema_version=2)))  # a newer worker, so to speak
        assert await old.receipt(receipt.id).result(20) == "ran with 1"


async def test_an_unknown_task_is_buried_after_ten_minutes_without_a_worker(crew: Crew) -> None:
    @rl_task(name="waiting", schema_version=1)
    def waiting(n: int) -> str:
        return f"ran with {n}"

    receipt = of_version(waiting, 2).push(1)
    async with crew.working():
        await until(lambda: crew.get(receipt.id).record.state is State.SCHEDULED, what="a put back")
        more = keys.spell(crew.ledger.prefix, "more", receipt.id)
        since = crew.stats().now_ms - 10 * 60_000
        crew.command("HSET", more, "since", since)  # as if it were that long ago
        dead = await died(crew, receipt.id)
    assert dead.record.reason == "SchemaMigrationError"
    with pytest.raises((SchemaMigrationError, TaskDeadError), match="newer code pushed the task"):
        receipt.result(1)


# --- rl schema check ---------------------------------------------------------------------------------------------


def rl(settings: Settings, *arguments: str, code: int) -> str:
    """Run `rl …` in its own process, because it imports modules."""
    done = subprocess.run(
        [sys.executable, "-m", "relier.cli", *arguments],
        env=environment(settings),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code != 2 else done.stderr


async def test_rl_schema_check_lists_what_a_deploy_could_not_run(crew: Crew, settings: Settings) -> None:
    from tests.support.jobs import schema_versions as deployed

    own = settings.replace(**QUICK)
    assert "All 0 waiting, running and dead tasks" in rl(
        own, "schema", "check", "tests.support.jobs.schema_versions", code=0
    )
    fine = [
        of_version(deployed.apart, 1).push(1).id,
        deployed.apart.push(1, by=2).id,
        deployed.plain.with_options(delay=60).push(1).id,
    ]
    assert "All 3 waiting, running and dead tasks can run" in rl(
        own, "schema", "check", "tests.support.jobs.schema_versions", code=0
    )
    newer = of_version(deployed.apart, 9).push(1).id
    gap = of_version(deployed.gappy, 1).with_options(delay=60).push(1).id
    unfit = of_version(deployed.plain, 1).push("a", "b", "c").id
    unknown = RlTask(lambda: None, TaskOptions(name="tests.support.jobs.schema_versions.gone")).push().id
    raising = of_version(deployed.raising, 1).push().id
    boot = crew.join()
    lease = crew.claim(boot).lease
    crew.run(crew.ledger.bury(lease, "ValueError"))
    told = json.loads(rl(own, "schema", "check", "tests.support.jobs.schema_versions", "--json", code=1))
    assert told["looked"] == 8
    found = {trouble["examples"][0]: trouble["why"] for trouble in told["troubles"]}
    assert found.keys() == {newer, gap, unfit, unknown, raising}
    assert "pushed by newer code with schema version 9; these modules have 2" in found[newer]
    assert "there is no migration; write one" in found[gap]
    assert "takes 1 positional argument but 3 were given" in found[unfit]
    assert "no such task in these modules" in found[unknown]
    assert "the migration from version 1 raised RuntimeError: no" in found[raising]
    assert {state for trouble in told["troubles"] for state in trouble["states"]} <= {"queued", "scheduled"}
    text = rl(own, "schema", "check", "tests.support.jobs.schema_versions", code=1)
    assert "5 of 8 tasks could not run with this code." in text
    assert fine[0] not in text
    RlTask(
        lambda: None, TaskOptions(name="schema_versions.plain")
    ).push()  # by the process that imports the file otherwise
    text = rl(own, "schema", "check", "tests.support.jobs.schema_versions", code=1)
    assert "no such task in these modules; did you mean tests.support.jobs.schema_versions.plain?" in text


async def test_rl_schema_check_without_modules_or_with_missing_ones(settings: Settings) -> None:
    assert "MODULES" in rl(settings, "schema", "check", code=2)
    assert "cannot be imported" in rl(settings, "schema", "check", "tests.support.jobs.nowhere", code=2)


async def test_rl_schema_check_changes_nothing(crew: Crew, settings: Settings) -> None:
    from tests.support.jobs import schema_versions as deployed

    of_version(deployed.gappy, 1).push(1)
    before = crew.command("DUMP", keys.spell(crew.ledger.prefix, "counts"))
    rl(settings.replace(**QUICK), "schema", "check", "tests.support.jobs.schema_versions", code=1)
    assert crew.command("DUMP", keys.spell(crew.ledger.prefix, "counts")) == before
