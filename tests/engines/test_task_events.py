"""When an event of a task is emitted, and who gets it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from relier import ConfigurationError, TaskEvent, use_hooks
from relier.engines import hooks
from relier.engines.hooks import MOST_WAITING, HookRunner
from relier.engines.settler import Settler
from relier.engines.task_events import TaskEvents
from relier.ledger.ledger import Ledger, load_scripts
from relier.ledger.records import Claimed, Submission, new_worker_id
from relier.logs.record_fields import TASK_FIELDS
from relier.options import task_options
from relier.run.current import install_log_fields
from relier.run.outcome import Done, Failed, HandBack, PutBack
from relier.settings import Settings
from relier.store import AsyncStore
from relier.submit.client import Client

pytestmark = pytest.mark.anyio
EVENT = TaskEvent("dead", "id", "name", "default", 1, "worker", reason="ValueError")


@pytest.fixture
def heard() -> Iterator[list[TaskEvent]]:
    """Return the events of all tasks, as hooks of each kind receive them."""
    events: list[TaskEvent] = []

    async def hear(event: TaskEvent) -> None:
        events.append(event)

    use_hooks(on_start=hear, on_success=hear, on_retry=hear, on_dead=hear, on_revived=hear)
    yield events
    for each in hooks._for_all.values():
        each.remove(hear)


class Desk:
    """Claimed tasks, a settler that reports their outcomes, and the events that it emits."""

    def __init__(self, store: AsyncStore, ledger: Ledger, claimed: list[Claimed]) -> None:
        self.store = store
        self.ledger = ledger
        self.claimed = claimed
        self.events = TaskEvents(store, ledger)
        self.settler = Settler(store, ledger, "", self.events)

    async def finish(self) -> None:
        assert await self.settler.finish(10)
        await self.events.finish()


@pytest.fixture
async def desk(settings: Settings) -> AsyncIterator[Desk]:
    client = Client(settings.replace(max_payload_bytes=1000))
    ledger, worker_id = client.ledger, new_worker_id()
    async with AsyncStore(client.settings, load_scripts()) as store:
        await store.run(ledger.open())
        await store.run(ledger.register(worker_id, 60_000))
        await store.run(ledger.submit([Submission(id=name, name="shop.work", payload=b"p") for name in "abc"]))
        claim = await store.run(ledger.claim(worker_id, 1, ["default"], 3))
        yield Desk(store, ledger, list(claim.tasks))


async def test_an_outcome_that_the_ledger_refuses_is_no_event(desk: Desk, heard: list[TaskEvent]) -> None:
    zombie, other, _ = desk.claimed
    await desk.store.run(desk.ledger.revive(worker_id=zombie.lease.worker_id, cause="killed"))
    desk.settler.settle(zombie, Done(b"1"))
    desk.settler.settle(other, Failed(ValueError("hm")))
    await desk.finish()
    assert heard == []


async def test_only_what_ends_an_attempt_for_good_or_counts_as_a_retry_is_an_event(
    desk: Desk, heard: list[TaskEvent]
) -> None:
    done, back, away = desk.claimed
    desk.events.refresh()
    desk.settler.settle(done, Done(b"1"))
    desk.settler.settle(back, HandBack())
    desk.settler.settle(away, PutBack(ValueError("not here")))
    await desk.finish()
    assert [(event.kind, event.task_id, event.run_s) for event in heard] == [("succeeded", "a", None)]


async def test_a_result_that_cannot_be_stored_is_a_death(desk: Desk, heard: list[TaskEvent]) -> None:
    desk.settler.settle(desk.claimed[0], Done(b"x" * 2000))
    await desk.finish()
    (event,) = heard
    assert (event.kind, event.task_id, event.task_name) == ("dead", "a", "shop.work")
    assert (event.reason, event.attempt) == ("PayloadTooLargeError", 1)
    assert "2,000 bytes" in event.error


async def test_swept_tasks_are_named_from_their_records(
    desk: Desk, heard: list[TaskEvent], caplog: pytest.LogCaptureFixture
) -> None:
    worker_id = desk.claimed[0].lease.worker_id
    swept = await desk.store.run(desk.ledger.revive(worker_id=worker_id, cause="killed by signal 9"))
    with caplog.at_level(logging.INFO, "relier.task"):
        desk.events.swept([*swept.outcomes, ("removed", "queued")])
        await desk.events.finish()
    assert {(event.kind, event.task_id, event.task_name) for event in heard} == {
        ("revived", name, "shop.work") for name in "abc"
    }
    assert {(event.worker_id, event.attempt, event.error) for event in heard} == {(worker_id, 1, "killed by signal 9")}
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 4
    assert "task removed was swept, state=queued, but its record cannot be read" in caplog.text


async def test_wanted_events_are_known_without_a_call(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "relier.task"):
        desk.events.refresh()
        assert (desk.events.wants_started, desk.events.wants_succeeded) == (False, False)
        desk.settler.settle(desk.claimed[0], Done(b"1"))
        assert desk.settler._drafts == {}
        await desk.finish()
    with caplog.at_level(logging.INFO, "relier.task"):
        desk.events.refresh()
        assert (desk.events.wants_started, desk.events.wants_succeeded) == (True, True)


async def test_a_limited_number_of_hanging_hooks_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    runner, gate, ran = HookRunner(), asyncio.Event(), 0

    async def hang(_: TaskEvent) -> None:
        nonlocal ran
        await gate.wait()
        ran += 1

    for _ in range(MOST_WAITING + 5):
        runner.start(hang, EVENT)
    assert [record.getMessage() for record in caplog.records] == [
        f"hooks are too slow, events are dropped: waiting={MOST_WAITING} hook={hang.__qualname__}"
    ]
    gate.set()
    await asyncio.wait(runner.running)
    assert ran == MOST_WAITING


async def test_the_hooks_of_a_task_are_called_in_the_order_of_its_events() -> None:
    runner, gate = HookRunner(), threading.Event()
    called: list[str] = []

    def slow(event: TaskEvent) -> None:
        gate.wait(20)
        called.append(event.kind)

    def quick(event: TaskEvent) -> None:
        called.append(f"{event.task_id} {event.kind}")
        if event.task_id == "other":
            gate.set()

    runner.start(slow, replace(EVENT, kind="retried"))
    runner.start(quick, EVENT)
    runner.start(quick, replace(EVENT, task_id="other"))
    await asyncio.wait(runner.running)
    assert called == ["other dead", "retried", "id dead"]
    runner.close()


async def test_what_a_hook_logs_names_its_task(caplog: pytest.LogCaptureFixture) -> None:
    install_log_fields()
    runner = HookRunner()

    def report(_: TaskEvent) -> None:
        logging.getLogger("shop").error("in a thread")

    async def areport(_: TaskEvent) -> None:
        logging.getLogger("shop").error("on the loop")

    runner.start(report, EVENT)
    runner.start(areport, EVENT)
    await asyncio.wait(runner.running)
    logging.getLogger("shop").error("outside")
    told = {each.message: [getattr(each, name, None) for name in TASK_FIELDS] for each in caplog.records}
    fields: list[Any] = ["id", "name", 1, "default", "worker"]
    assert told == {"in a thread": fields, "on the loop": fields, "outside": [None] * 5}
    runner.close()


@pytest.mark.parametrize("option", ["on_start", "on_success", "on_retry", "on_dead", "on_revived"])
def test_a_hook_is_a_function(option: str) -> None:
    given: dict[str, Any] = {option: "alert"}
    with pytest.raises(ConfigurationError, match=f"task shop.pay: {option} must be a function, not 'alert'"):
        task_options("shop.pay", given)
    with pytest.raises(ConfigurationError, match=f"use_hooks: {option} must be a function, not 'alert'"):
        use_hooks(**given)
    with pytest.raises(ConfigurationError, match=r"there is no option 'on_died'; did you mean on_dead\?"):
        task_options("shop.pay", {"on_died": print})


def test_a_hook_that_is_given_twice_is_called_once() -> None:
    def hear(_: TaskEvent) -> None: ...

    use_hooks(on_dead=hear)
    use_hooks(on_dead=hear)
    try:
        assert list(hooks.hooks_for("dead", None)) == [hear]
        assert list(hooks.hooks_for("cancelled", None)) == []
    finally:
        hooks._for_all["dead"].remove(hear)
