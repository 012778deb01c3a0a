"""Every error reply of the store, to every caller: a reply that means "not now" is waited for, and only a reply that
can never succeed is final."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData, create_engine

from relier import Client, Settings, TaskContext, idempotency_lock, rl_task, use_client
from relier.engines.worker import Worker, WorkerOptions
from relier.errors import StoreReplyError, StoreUnavailableError
from relier.outbox.publish.target import LedgerTarget
from relier.outbox.push import forget_outbox
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.relay import Relay
from relier.outbox.sqlalchemy.engines import EngineDatabase
from relier.outbox.sqlalchemy.outbox import Outbox
from relier.settings import DEFAULTS
from relier.states import State
from relier.store.replies import MEANINGS
from tests.support.refusing import FINAL, PASSING, REPLIES, Refusing

pytestmark = pytest.mark.anyio

effects: list[str] = []
gates: dict[str, asyncio.Event] = {}  # of `hold`, one pair for each test
trouble: dict[str, Callable[[], None]] = {}  # what happens at a named place of a task's body


@rl_task(name="tests.outage.pay")
async def pay(ctx: TaskContext, order: str) -> str:
    async def charge() -> str:
        effects.append("charge")
        trouble["step"]()
        return "charged"

    paid = await ctx.step("charge", charge)
    trouble["checkpoint"]()
    await ctx.set_partial({"paid": paid})
    trouble["lock"]()
    async with idempotency_lock(f"mail:{order}") as lock:
        effects.append("mail")
        lock.set_result("mailed")
        trouble["conclude"]()
    trouble["settle"]()
    return paid


@rl_task(name="tests.outage.plain")
def plain(order: int) -> int:
    return order


@rl_task(name="tests.outage.hold")
async def hold() -> None:
    gates["holds"].set()
    await gates["may_end"].wait()


class Repeats(logging.Handler):
    """End the outage once a caller has logged that a call failed and will be repeated."""

    def __init__(self, refusing: Refusing) -> None:
        super().__init__()
        self.seen: list[str] = []
        self._refusing = refusing

    def emit(self, record: logging.LogRecord) -> None:
        if "will be sent again" in record.getMessage():
            self.seen.append(str(record.args[0]) if isinstance(record.args, tuple) else "")
            self._refusing.end()


@pytest.fixture
def repeats(refusing: Refusing) -> Iterator[Repeats]:
    handler, logger = Repeats(refusing), logging.getLogger("relier")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.fixture
async def client(through: Settings) -> AsyncIterator[Client]:
    own = Client(through)
    use_client(own)
    yield own
    use_client(None)
    await own.aclose()


@pytest.fixture
async def patient(through: Settings) -> AsyncIterator[Client]:
    """The same with an ordinary deadline, for replies that end a call at once: nothing else may end it first."""
    own = Client(through.replace(redis_deadline=DEFAULTS["redis_deadline"]))
    use_client(own)
    yield own
    use_client(None)
    await own.aclose()


@pytest.fixture
async def observer(settings: Settings) -> AsyncIterator[Client]:
    """A client whose calls are not refused."""
    own = Client(settings)
    yield own
    await own.aclose()


@pytest.fixture(autouse=True)
def quiet() -> None:
    effects.clear()
    gates.update(holds=asyncio.Event(), may_end=asyncio.Event())
    trouble.update(dict.fromkeys(("step", "checkpoint", "lock", "conclude", "settle"), lambda: None))


def test_every_code_of_the_table_has_a_reply() -> None:
    assert MEANINGS.keys() <= REPLIES.keys()


async def push_through(other: Client, task: Any, *args: Any, instead_of: Client) -> Any:
    """Push with a client with ordinary deadlines: those of the client under test are too short for a busy machine."""
    use_client(other)
    receipt = await task.apush(*args)
    use_client(instead_of)
    return receipt


async def run_until_ended(client: Client, observer: Client, task_id: str) -> Any:
    worker = Worker(client, WorkerOptions(concurrency=2))
    running = asyncio.create_task(worker.run())
    while True:
        task = await observer.arun(observer.ledger.get(task_id))
        if task.record.state in (State.DONE, State.DEAD):
            worker.drain()
            break
        await asyncio.wait({running}, timeout=0.02)
    await running
    return task


@pytest.mark.parametrize("place", ["step", "checkpoint", "lock", "conclude", "settle"])
@pytest.mark.parametrize("code", PASSING)
async def test_a_running_task_survives_temporary_errors(
    client: Client, observer: Client, refusing: Refusing, repeats: Repeats, code: str, place: str
) -> None:
    """Heartbeats, claims and sweeps are refused as well, for longer than a call's deadline."""
    trouble[place] = lambda: refusing.begin(code)
    receipt = await push_through(observer, pay, "7", instead_of=client)
    task = await run_until_ended(client, observer, receipt.id)
    assert (task.record.state, effects) == (State.DONE, ["charge", "mail"]), task
    assert len(task.history) <= 1, "one attempt"
    assert repeats.seen, "the outage was longer than a call's deadline"
    assert refusing.refused


@pytest.mark.parametrize("place", ["step", "checkpoint", "lock", "conclude", "settle"])
async def test_forgotten_scripts_are_loaded_again_unnoticed(
    patient: Client, observer: Client, refusing: Refusing, repeats: Repeats, place: str
) -> None:
    trouble[place] = lambda: refusing.begin("NOSCRIPT")
    receipt = await push_through(observer, pay, "7", instead_of=patient)
    task = await run_until_ended(patient, observer, receipt.id)
    assert (task.record.state, effects) == (State.DONE, ["charge", "mail"])
    assert not repeats.seen
    assert refusing.refused


@pytest.mark.parametrize("code", FINAL)
async def test_a_step_that_can_never_be_recorded_is_a_dead_letter(
    patient: Client, observer: Client, refusing: Refusing, repeats: Repeats, code: str
) -> None:
    trouble["step"] = lambda: refusing.begin(code)
    receipt = await push_through(observer, pay, "7", instead_of=patient)
    task = await run_until_ended(patient, observer, receipt.id)
    assert (task.record.state, task.record.reason) == (State.DEAD, "StoreReplyError")
    assert repeats.seen == ["bury"], "the dead letter is told until the store takes it"


@pytest.mark.parametrize("code", PASSING)
async def test_a_push_that_was_refused_for_now_can_be_repeated(
    client: Client, observer: Client, refusing: Refusing, code: str
) -> None:
    await push_refused_and_again(client, observer, refusing, code)


@pytest.mark.parametrize("code", FINAL)
async def test_a_push_that_was_refused_for_good_can_be_repeated(
    patient: Client, observer: Client, refusing: Refusing, code: str
) -> None:
    await push_refused_and_again(patient, observer, refusing, code)


async def push_refused_and_again(client: Client, observer: Client, refusing: Refusing, code: str) -> None:
    await observer.aopen()
    client.namespace.opened = True
    refusing.begin(code)
    for error in (await refused_by_apush(), await asyncio.to_thread(refused_by_push)):
        assert isinstance(error, StoreUnavailableError) is (code in PASSING), error
        assert isinstance(error, StoreReplyError) is (code in FINAL), error
        assert error.task_id
    refusing.end()
    again = await push_through(observer, plain.with_options(task_id=error.task_id), 1, instead_of=client)
    assert (await again.info()).record.state is State.QUEUED


async def refused_by_apush() -> Any:
    with pytest.raises((StoreUnavailableError, StoreReplyError)) as caught:
        await plain.apush(1)
    return caught.value


def refused_by_push() -> Any:
    with pytest.raises((StoreUnavailableError, StoreReplyError)) as caught:
        plain.push(1)
    return caught.value


async def test_a_push_never_meets_forgotten_scripts(through: Settings, refusing: Refusing) -> None:
    patient = Client(through.replace(redis_deadline=10.0))
    use_client(patient)
    refusing.begin("NOSCRIPT")
    assert (await plain.apush(1)).id
    assert (await asyncio.to_thread(plain.push, 2)).id
    use_client(None)
    await patient.aclose()


@pytest.mark.parametrize("code", REPLIES)
async def test_heartbeats_continue_whatever_error_the_store_replies(
    through: Settings, observer: Client, refusing: Refusing, code: str
) -> None:
    """A worker is lost only if the ledger itself says that it is gone. If the server forgets its scripts, the worker
    does not notice."""
    quick = Client(through.replace(heartbeat_ttl=1.0))
    worker = Worker(quick, WorkerOptions(sweep=False))
    receipt = await push_through(observer, hold, instead_of=quick)
    running = asyncio.create_task(worker.run())
    boot = worker.worker_id
    await gates["holds"].wait()
    refusing.begin(code, only=quick.scripts["beat"].sha)
    while refusing.refused < (1 if code == "NOSCRIPT" else 3):
        await asyncio.wait({running}, timeout=0.02)
    refusing.end()
    beat = await last_beat(observer)
    while await last_beat(observer) == beat:
        await asyncio.wait({running}, timeout=0.02)
    gates["may_end"].set()
    while (await observer.arun(observer.ledger.get(receipt.id))).record.state is State.RUNNING:
        await asyncio.wait({running}, timeout=0.02)
    worker.drain()
    await running
    ended = (await observer.arun(observer.ledger.get(receipt.id))).record
    assert (ended.state, ended.attempt, worker.worker_id) == (State.DONE, 1, boot)
    use_client(None)
    await quick.aclose()


async def last_beat(observer: Client) -> int:
    (boot,) = (await observer.arun(observer.ledger.stats())).workers
    return boot.beat_ms


@pytest.mark.parametrize("code", PASSING)
def test_a_relay_charges_no_row_for_temporary_errors(
    through: Settings, settings: Settings, refusing: Refusing, tmp_path: Path, code: str
) -> None:
    metadata = MetaData()
    outbox = Outbox(metadata, wake=False)
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    metadata.create_all(engine)
    own = Client(settings)
    own.open()
    ledger = Client(through)
    ledger.namespace.opened = True
    with engine.begin() as connection:
        receipts = [outbox.add(connection, plain, order) for order in range(3)]
    relay = Relay(EngineDatabase(engine), [LedgerTarget(ledger)], RelayOptions(broker_outage_cooldown=0.01))
    try:
        refusing.begin(code)
        relay.drain()
        assert relay.counts.outages == 3
        with engine.connect() as connection:
            assert [row.retries for row in connection.execute(outbox.table.select())] == [0, 0, 0]
        refusing.end()
        until_sent(relay)
        assert [own.run(own.ledger.get(one.id)).record.state for one in receipts] == [State.QUEUED] * 3
    finally:
        own.close()
        relay.close()
        forget_outbox(outbox)
        engine.dispose()


def until_sent(relay: Relay) -> None:
    while relay.counts.published < 3:
        relay.drain()
