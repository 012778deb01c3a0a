"""run_pending on a real embedded store: delays, retries, timeouts and deaths, without waiting."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from relier import (
    ConfigurationError,
    HardTimeoutError,
    LeaseLostError,
    ResultTimeoutError,
    Retries,
    TaskContext,
    TaskEvent,
    TaskState,
    rl_task,
)
from relier.ledger.ledger import load_scripts
from relier.ledger.pages import read_stats
from relier.run.application import lifespan as lifespans
from relier.testing import (
    VirtualStore,
    arun_pending,
    kill_after_step,
    kill_before_commit,
    lose_lease,
    override,
    run_pending,
    store,
)
from relier.testing.virtual import pending
from relier.testing.virtual.store_clock import CLOCK_KEY
from relier.testing.virtual.timers import VirtualTimers

pytestmark = pytest.mark.anyio
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@rl_task(name="rp.fulfil", retries=Retries(attempts=2, backoff=3600, max_backoff=3600, jitter=0))
async def fulfil(ctx: TaskContext, order: int, failures: int = 0) -> str:
    paid = await ctx.step("charge", _effect, "charge", order)
    if ctx.metadata["retries"] < failures:
        raise ConnectionError("the mail server is unreachable")
    await ctx.step("mail", _effect, "mail", order)
    return paid


def _effect(what: str, order: int) -> str:
    ran.append((what, order))
    return f"{what}-{order}"


@rl_task(name="rp.add", queue="sums")
def add(a: int, b: int) -> int:
    ran.append(threading.current_thread().name)
    return a + b


@rl_task(name="rp.sleepy", soft_timeout=10, hard_timeout=60, on_soft_timeout=lambda ctx: ran.append("soft"))
async def sleepy(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


@rl_task(name="rp.append")
async def append(value: Any) -> None:
    ran.append(value)


# --- time ------------------------------------------------------------------------------------------------------------


def test_everything_that_is_queued_delayed_or_retried_runs(relier_store: VirtualStore) -> None:
    began = time.monotonic()
    late = add.with_options(delay=3 * HOUR).push(1, 2)
    receipt = fulfil.push(42, failures=2)
    attempts = run_pending()
    assert [(each.name, each.attempt, each.outcome, each.at) for each in attempts] == [
        ("rp.fulfil", 1, "retried", 0 * HOUR),
        ("rp.fulfil", 2, "retried", 1 * HOUR),
        ("rp.fulfil", 3, "done", 2 * HOUR),
        ("rp.add", 1, "done", 3 * HOUR),
    ]
    assert receipt.result() == "charge-42"
    assert late.result() == 3
    assert ran[:2] == [("charge", 42), ("mail", 42)]
    assert isinstance(attempts[0].error, ConnectionError)
    assert time.monotonic() - began < 5.0


def test_tasks_run_in_the_order_in_which_they_were_pushed(relier_store: VirtualStore) -> None:
    for number in range(20):
        append.push(number)
    run_pending()
    assert ran == list(range(20))


def test_time_passes_only_when_the_test_says_so(relier_store: VirtualStore) -> None:
    began = relier_store.now
    receipt = append.with_options(delay=60).push("late")
    assert run_pending(within=59) == []
    assert relier_store.now - began >= 59 * SECOND
    assert receipt.state() is TaskState.SCHEDULED
    relier_store.advance(SECOND)
    assert [str(each) for each in run_pending(within=0)] == ["rp.append('late'), attempt 1: done"]
    assert run_pending() == []


def test_timeouts_follow_the_virtual_clock(relier_store: VirtualStore) -> None:
    began = time.monotonic()
    fine, late = sleepy.push(30.0), sleepy.push(3600.0)
    first, second = run_pending()
    assert (first.outcome, first.at, first.result) == ("done", 30 * SECOND, "rested")
    assert (second.outcome, second.at) == ("dead", 90 * SECOND)
    assert ran == ["soft", "soft"]
    assert fine.result() == "rested"
    with pytest.raises(HardTimeoutError):
        late.result()
    assert time.monotonic() - began < 5.0


def test_code_of_a_task_may_use_timeouts_and_sleeps_of_its_own(relier_store: VirtualStore) -> None:
    @rl_task(name="rp.own_timeouts")
    async def own_timeouts() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await asyncio.Event().wait()
        await asyncio.gather(asyncio.sleep(50), asyncio.sleep(200))
        async with asyncio.timeout(1000):
            await asyncio.sleep(700)
        return loop.time() - began

    receipt = own_timeouts.push()
    run_pending()
    assert receipt.result() == pytest.approx(1000.0)


def test_a_def_runs_in_the_thread_of_the_test_and_takes_its_real_time(relier_store: VirtualStore) -> None:
    """So it uses the database connection of the test, which Django and others keep for each thread."""

    @rl_task(name="rp.blocking", hard_timeout=0.2)
    def blocking() -> None:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            time.sleep(0.001)

    receipt = add.push(1, 2)
    (only,) = run_pending()
    assert (only.outcome, only.at, receipt.result()) == ("done", timedelta(), 3)
    assert ran == [threading.current_thread().name]
    blocking.push()
    (only,) = run_pending()
    assert (only.outcome, type(only.error)) == ("dead", HardTimeoutError)


async def test_a_def_runs_in_a_thread_of_its_own_where_a_loop_runs(relier_store: VirtualStore) -> None:
    await add.apush(1, 2)
    await arun_pending()
    assert ran[0].startswith("relier-task-")


async def test_a_task_that_waits_for_a_socket_waits_in_real_time(
    relier_store: VirtualStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Virtual time must not pass meanwhile, or the hard timeout would hit a task that only waits for its database."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    waits = []

    async def wait(seconds: float) -> float:
        waits.append(seconds)
        if len(waits) == 3:
            theirs.send(b"x")
        await asyncio.sleep(seconds)
        return seconds

    @rl_task(name="rp.reading", hard_timeout=60)
    async def reading() -> str:
        return (await asyncio.get_running_loop().sock_recv(ours, 1)).decode()

    monkeypatch.setattr(VirtualTimers, "wait_really", staticmethod(wait))
    receipt = await reading.apush()
    (only,) = await arun_pending()
    assert (only.outcome, only.at, await receipt.result()) == ("done", timedelta(), "x")
    ours.close()
    theirs.close()


async def test_only_the_tasks_see_the_virtual_clock(relier_store: VirtualStore) -> None:
    """The test itself, and other code on its event loop, still see the real clock."""
    await append.with_options(delay=3600).apush(1)
    async with asyncio.timeout(30):
        await arun_pending()
    assert ran == [1]
    loop = asyncio.get_running_loop()
    assert "call_later" not in vars(loop)
    assert "time" not in vars(loop)


async def test_tasks_can_use_resources_of_the_tests_loop(relier_store: VirtualStore) -> None:
    event = asyncio.Event()

    @rl_task(name="rp.setting")
    async def setting() -> bool:
        event.set()
        return asyncio.get_running_loop() is loop

    loop = asyncio.get_running_loop()
    receipt = await setting.apush()
    await arun_pending()
    assert await receipt.result() is True
    assert event.is_set()


# --- what runs -------------------------------------------------------------------------------------------------------


def test_tasks_that_tasks_push_run_too(relier_store: VirtualStore) -> None:
    @rl_task(name="rp.pusher")
    async def pusher(n: int) -> None:
        if n:
            await pusher.with_options(delay=60).apush(n - 1)

    pusher.push(3)
    assert [each.at for each in run_pending()] == [n * timedelta(minutes=1) for n in range(4)]


def test_a_task_may_wait_for_another_if_both_can_run_at_once(relier_store: VirtualStore) -> None:
    @rl_task(name="rp.waiting")
    async def waiting() -> int:
        return await (await add.with_options(delay=5).apush(1, 2)).result()

    receipt = waiting.push()
    run_pending(concurrency=2)
    assert receipt.result() == 3


def test_queues_can_be_chosen_and_paused_ones_are_left(relier_store: VirtualStore) -> None:
    receipt = add.push(1, 2)
    append.push(1)
    assert [each.name for each in run_pending(queues=["default"])] == ["rp.append"]
    client = relier_store.client
    client.run(client.ledger.pause("sums", 0))
    assert run_pending() == []
    client.run(client.ledger.resume("sums", 1))
    assert len(run_pending()) == 1
    assert receipt.result() == 3


def test_an_isolated_task_runs_in_this_process(relier_store: VirtualStore) -> None:
    @rl_task(name="rp.isolated", isolate=True)
    def isolated() -> None:
        ran.append("here")

    isolated.push()
    run_pending()
    assert ran == ["here"]


def test_a_lifespan_is_entered_and_can_be_replaced(relier_store: VirtualStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def real() -> AsyncIterator[str]:
        ran.append("open")
        yield "real"
        ran.append("closed")

    async def fake() -> AsyncIterator[str]:
        yield "fake"

    @rl_task(name="rp.stateful")
    async def stateful(ctx: TaskContext) -> None:
        ran.append(ctx.state)

    monkeypatch.setattr(lifespans, "_declared", real)
    stateful.push()
    run_pending()
    with override(real, fake):
        stateful.push()
        run_pending()
    assert ran == ["open", "real", "closed", "fake"]


def test_hooks_are_called_and_events_logged(relier_store: VirtualStore, caplog: pytest.LogCaptureFixture) -> None:
    @rl_task(name="rp.heard", retries=2, on_start=_hear, on_retry=_hear, on_success=_hear, on_revived=_hear)
    async def heard(ctx: TaskContext) -> None:
        await ctx.step("one", str)
        logging.getLogger("app").warning("in the task")
        if ctx.metadata["retries"] == 0:
            raise ValueError

    heard.push()
    run_pending(kill_after_step("one"))
    assert sorted(ran) == ["retried", "revived", "started", "started", "started", "succeeded"]
    (own, *_) = [record for record in caplog.records if record.name == "app"]
    assert vars(own)["task_name"] == "rp.heard"
    assert "task retried: name=rp.heard" in caplog.text


def _hear(event: TaskEvent) -> None:
    ran.append(event.kind)


def test_no_trace_of_a_worker_is_left(relier_store: VirtualStore) -> None:
    fulfil.push(1)
    run_pending(kill_after_step("charge"))
    client = relier_store.client
    assert read_stats(client.run, client.ledger).workers == ()


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_killed_attempt_is_revived_and_does_not_repeat_its_step(relier_store: VirtualStore) -> None:
    receipt = fulfil.push(42)
    killed, second = run_pending(kill_after_step("charge"))
    assert (killed.outcome, second.outcome) == ("killed", "done")
    assert timedelta(seconds=4) < second.at - killed.at < timedelta(seconds=8)  # a lease
    assert ran == [("charge", 42), ("mail", 42)]
    assert receipt.result() == "charge-42"
    assert receipt.info().record.attempt == 2


def test_a_killed_attempt_does_nothing_more(relier_store: VirtualStore) -> None:
    @rl_task(name="rp.stubborn")
    def stubborn(ctx: TaskContext) -> str:
        try:
            ctx.step_sync("one", ran.append, "one")
            ran.append("after")
        except BaseException:  # noqa: BLE001 - as careless code does
            ran.append("caught")
            append.push("from the grave")
        return "ended"

    receipt = stubborn.push()
    killed, second = run_pending(kill_after_step("one", task=stubborn))
    assert (killed.outcome, second.outcome) == ("killed", "done")
    assert ran == ["one", "caught", "after"]
    assert receipt.result() == "ended"


def test_an_attempt_killed_before_its_commit_runs_again(relier_store: VirtualStore) -> None:
    receipt = fulfil.push(42)
    assert [each.outcome for each in run_pending(kill_before_commit())] == ["killed", "done"]
    assert ran == [("charge", 42), ("mail", 42)]
    assert receipt.result() == "charge-42"


def test_the_commit_of_an_attempt_without_its_lease_is_refused(relier_store: VirtualStore) -> None:
    append.push("twice")
    zombie, second = run_pending(lose_lease())
    assert (zombie.outcome, second.outcome) == ("refused", "done")
    assert ran == ["twice", "twice"]


def test_a_step_of_an_attempt_without_its_lease_is_refused(relier_store: VirtualStore) -> None:
    seen: list[BaseException] = []

    @rl_task(name="rp.guarded")
    async def guarded(ctx: TaskContext) -> None:
        await ctx.step("one", ran.append, "one")
        try:
            await ctx.step("two", ran.append, "two")
        except LeaseLostError as error:
            seen.append(error)
            raise

    guarded.push()
    zombie, second = run_pending(lose_lease(after_step="one"))
    assert (zombie.outcome, second.outcome) == ("refused", "done")
    assert len(seen) == 1
    assert ran == ["one", "two", "two"]


def test_a_kill_ends_all_branches_of_a_task(relier_store: VirtualStore) -> None:
    @rl_task(name="rp.branches")
    async def branches(ctx: TaskContext) -> None:
        async def other() -> None:
            await asyncio.sleep(1)
            await ctx.step("other", ran.append, "other")

        await asyncio.gather(other(), ctx.step("one", ran.append, "one"))

    branches.push()
    assert [each.outcome for each in run_pending(kill_after_step("one"))] == ["killed", "done"]
    assert ran == ["one", "other"]


def test_several_faults_happen_one_after_the_other(relier_store: VirtualStore) -> None:
    fulfil.push(42, failures=1)
    outcomes = [each.outcome for each in run_pending(kill_after_step("charge"), kill_after_step("mail"))]
    assert outcomes == ["killed", "retried", "killed", "done"]
    assert ran == [("charge", 42), ("mail", 42)]


def test_a_kill_takes_everything_that_its_worker_runs(relier_store: VirtualStore) -> None:
    @rl_task(name="rp.neighbour")
    async def neighbour() -> None:
        await asyncio.sleep(1)

    neighbour.push()
    fulfil.push(42)
    outcomes = sorted((each.name, each.outcome) for each in run_pending(kill_after_step("charge"), concurrency=2))
    assert outcomes == [
        ("rp.fulfil", "done"),
        ("rp.fulfil", "killed"),
        ("rp.neighbour", "done"),
        ("rp.neighbour", "killed"),
    ]


def test_a_fault_that_never_happens_fails_the_test(relier_store: VirtualStore) -> None:
    append.push(1)
    with pytest.raises(AssertionError, match=r"kill_after_step\('chrage'\) never happened.*\n  rp.append\(1\)"):
        run_pending(kill_after_step("chrage"))


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_a_result_that_nobody_works_on_is_an_error_at_once(relier_store: VirtualStore) -> None:
    receipt = append.push(1)
    with pytest.raises(ResultTimeoutError, match=r"call run_pending\(\)"):
        receipt.result()


def test_without_a_store_of_its_own_a_test_is_told_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match="relier_store"):
        run_pending()


async def test_run_pending_on_a_loop_says_what_to_do(relier_store: VirtualStore) -> None:
    with pytest.raises(ConfigurationError, match=r"await arun_pending\(\)"):
        run_pending()


async def test_a_second_run_at_the_same_time_is_refused(relier_store: VirtualStore) -> None:
    @rl_task(name="rp.nested")
    async def nested() -> None:
        await arun_pending()

    await nested.apush()
    (only,) = await arun_pending()
    assert (only.outcome, type(only.error)) == ("dead", ConfigurationError)


def test_a_task_that_waits_for_nothing_is_named(relier_store: VirtualStore) -> None:
    @rl_task(name="rp.stuck")
    async def stuck() -> None:
        await asyncio.Event().wait()

    receipt = stuck.push()
    with pytest.raises(AssertionError, match=r"rp.stuck .* waits for something that never happens"):
        run_pending()
    assert receipt.state() is TaskState.QUEUED


def test_a_task_that_pushes_itself_for_ever_is_named(
    relier_store: VirtualStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "MOST_ATTEMPTS", 50)

    @rl_task(name="rp.forever")
    async def forever() -> None:
        await forever.with_options(delay=60).apush()

    forever.push()
    assert len(run_pending(within=HOUR / 4)) == 16
    with pytest.raises(AssertionError, match=r"gave up after 50 attempts; the last was rp.forever\(\)"):
        run_pending()


# --- stores ----------------------------------------------------------------------------------------------------------


def test_each_store_is_a_namespace_of_its_own() -> None:
    with store(heartbeat_ttl=30.0) as first:
        append.push(1)
        with store() as second:
            assert first.client.settings.namespace != second.client.settings.namespace
            assert run_pending() == []
        assert first.client.settings.heartbeat_ttl == 30.0
        assert len(run_pending()) == 1


def test_the_scripts_of_production_do_not_know_the_clock_of_tests() -> None:
    scripts = load_scripts()
    assert not [name for name in scripts.names() if CLOCK_KEY in scripts[name].text]
