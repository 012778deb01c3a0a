"""One block, one key: who runs it, what is kept of it, and what each way of leaving it means."""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from relier import (
    Client,
    IdempotencyInFlightError,
    LeaseLostError,
    LockState,
    PayloadEncodingError,
    PayloadTooLargeError,
    RelierError,
    idempotency_lock,
)
from relier.errors import InvalidSubmissionError
from relier.submit.ledger_access import AwaitedCalls, LedgerAccess
from tests.support.locking import Enter, eventually, inside, join, lease_of, mark, spelled, take_over

pytestmark = pytest.mark.anyio
CROWD = 50


async def run_once(enter: Enter, key: str = "k", ttl: float = 3600, result: Any = "done") -> tuple[bool, Any]:
    """Run the block as the documentation shows it. Return whether it had been executed already, and its result."""
    async with enter(key, ttl) as lock:
        if lock.already_executed:
            return True, lock.cached_result
        lock.set_result(result)
        return False, result


# --- three states --------------------------------------------------------------------------------------------------


async def test_a_block_runs_once(enter: Enter) -> None:
    assert await run_once(enter) == (False, "done")
    assert await run_once(enter, result="other") == (True, "done")
    assert await run_once(enter, "another key") == (False, "done")


async def test_the_states_as_the_block_sees_them(enter: Enter) -> None:
    async with enter() as lock:
        assert lock.state is LockState.CLAIMED
        assert (lock.already_executed, lock.cached_result) == (False, None)
        second = idempotency_lock("k")
        assert second.state is None
        with pytest.raises(IdempotencyInFlightError), second:
            pytest.fail("the block of another's key was run")
        assert second.state is LockState.IN_FLIGHT
        lock.set_result(1)
    async with enter() as lock:
        assert lock.state is LockState.COMPLETED
        assert (lock.already_executed, lock.cached_result) == (True, 1)


async def test_the_in_flight_error_names_the_holder_and_its_time(client: Client, enter: Enter) -> None:
    async with enter() as lock:
        lock.set_result(None)
        with pytest.raises(
            IdempotencyInFlightError, match=rf"process \S+\.{os.getpid()} runs .*for at most 1(19|20)\S* s"
        ) as told:
            await run_once(enter)
        assert told.value.task_id == ""

    async def in_a_task() -> None:
        async with enter("t") as lock:
            lock.set_result(None)
            with pytest.raises(IdempotencyInFlightError, match="task task-1 on worker boot") as told:
                await run_once(enter, "t")
            assert told.value.task_id == "task-1"

    await inside(lease_of(join(client), "task-1"), in_a_task)


async def test_a_block_whose_key_is_done_writes_nothing(client: Client, enter: Enter) -> None:
    await run_once(enter)
    before = mark(client)
    async with enter():
        pass
    with pytest.raises(ValueError, match="late"):
        async with enter():
            raise ValueError("late")
    assert mark(client) == before


async def test_a_result_set_again_is_dropped_with_a_warning(enter: Enter, caplog: pytest.LogCaptureFixture) -> None:
    await run_once(enter)
    async with enter() as lock:
        lock.set_result("other")
    assert "check already_executed" in caplog.text
    assert await run_once(enter) == (True, "done")


async def test_sync_and_async_locks_exclude_each_other(client: Client) -> None:
    with idempotency_lock("k") as lock:
        with pytest.raises(IdempotencyInFlightError):
            async with idempotency_lock("k"):
                pytest.fail("two ran")
        lock.set_result(1)
    async with idempotency_lock("k") as other:
        assert other.cached_result == 1


# --- the result ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result",
    [
        *(None, 0, "", "ünï", [1, {"a": (1, 2)}], b"\x00\n", Decimal("1.50"), {1: 2}, {"x"}, float("inf")),
        *(datetime(2026, 11, 15, tzinfo=UTC), UUID(int=5), timedelta(days=1), "x" * 100_000),
    ],
    ids=lambda value: f"{value!r:.20}",
)
async def test_a_result_is_decoded_to_an_equal_value(enter: Enter, result: Any) -> None:
    await run_once(enter, result=result)
    executed, found = await run_once(enter)
    assert executed
    assert found == result
    assert type(found) is type(result)


async def test_without_a_result_none_is_stored_and_logged(enter: Enter, caplog: pytest.LogCaptureFixture) -> None:
    async with enter():
        pass
    assert "ended without a result, None is kept" in caplog.text
    assert await run_once(enter) == (True, None)


async def test_the_last_result_counts_as_it_was_when_set(enter: Enter) -> None:
    async with enter() as lock:
        lock.set_result("first")
        rows = [1]
        lock.set_result(rows)
        rows.append(2)
    assert await run_once(enter) == (True, [1])


@pytest.mark.parametrize(
    ("value", "error"),
    [(object(), PayloadEncodingError), ("x" * 1_100_000, PayloadTooLargeError)],
    ids=["kind", "size"],
)
async def test_a_result_that_cannot_be_stored_is_refused_and_frees_the_key(
    client: Client, enter: Enter, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="the result of lock 'k'"):
        await run_once(enter, result=value)
    assert mark(client) is None
    assert await run_once(enter) == (False, "done")


async def test_a_result_is_kept_for_its_ttl(client: Client, enter: Enter) -> None:
    await run_once(enter, ttl=0.05)
    assert client.sync_store.command("PTTL", spelled(client)) > 60_000, "its end is in the mark, not in an expiry"
    async with asyncio.timeout(10):
        while (await run_once(enter, ttl=60, result="again"))[0]:
            pass
    assert await run_once(enter) == (True, "again")


# --- ways out ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
async def test_an_exception_frees_the_key(client: Client, kind: str, error: type[BaseException]) -> None:
    async def block() -> None:
        if kind == "async":
            async with idempotency_lock("k") as lock:
                lock.set_result("too early")
                raise error
        with idempotency_lock("k") as lock:
            lock.set_result("too early")
            raise error

    with pytest.raises(error):
        await block()
    assert mark(client) is None


async def test_a_cancelled_block_frees_its_key(client: Client) -> None:
    entered = asyncio.Event()

    async def block() -> None:
        async with idempotency_lock("k"):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await entered.wait()
    assert mark(client) is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert mark(client) is None


async def test_a_block_cancelled_as_it_ends_is_done(client: Client) -> None:
    """The work was done, so the cancellation comes too late to undo it, but is still raised."""

    async def block() -> None:
        async with idempotency_lock("k") as lock:
            lock.set_result("done")
            task.cancel()  # is delivered at the next await, which is the one that keeps the result

    task = asyncio.create_task(block())
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: (mark(client) or b"").startswith(b"done"))


class SlowAnswers(LedgerAccess[AwaitedCalls]):
    """Delay the answer to a lock: its caller may be cancelled after the store ran the call."""

    def __init__(self, client: Client) -> None:
        super().__init__(client.namespace, client.awaiting.calls)
        self.ran = asyncio.Event()
        self.answers = asyncio.Event()

    async def run(self, call: Any, within: float = math.inf) -> Any:
        answer = await super().run(call, within)
        if call.script == "lock":
            self.ran.set()
            await self.answers.wait()
        return answer


async def test_a_block_cancelled_as_it_enters_holds_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Client(client.settings)
    slow = SlowAnswers(own)
    monkeypatch.setattr(own, "awaiting", slow)
    monkeypatch.setattr("relier.lock.blocks.default_client", lambda: own)
    task = asyncio.create_task(idempotency_lock("k").__aenter__())
    await slow.ran.wait()
    assert mark(client) is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: mark(client) is None)
    await own.aclose()


async def test_a_lock_may_be_used_again_but_not_twice_at_once(client: Client) -> None:
    lock = idempotency_lock("k", ttl=60)
    with lock:
        with pytest.raises(RelierError, match="already entered"), lock:
            pytest.fail("entered twice")
        lock.set_result(5)
    async with lock:
        assert lock.cached_result == 5


async def test_a_result_outside_the_block_is_refused(enter: Enter, client: Client) -> None:
    lock = idempotency_lock("k")
    with pytest.raises(RelierError, match="outside its block"):
        lock.set_result(1)
    with lock:
        lock.set_result(1)
    with pytest.raises(RelierError, match="outside its block"):
        lock.set_result(2)


# --- crowds --------------------------------------------------------------------------------------------------------


async def test_one_of_fifty_concurrent_blocks_on_a_loop_runs(client: Client) -> None:
    runs, refused, all_refused = [], [], asyncio.Event()

    async def contend(n: int) -> Any:
        try:
            async with idempotency_lock("k") as lock:
                if lock.already_executed:
                    return lock.cached_result
                runs.append(n)
                await all_refused.wait()
                lock.set_result(n)
                return n
        except IdempotencyInFlightError:
            refused.append(n)
            if len(refused) == CROWD - 1:
                all_refused.set()

    async with asyncio.timeout(30):
        await asyncio.gather(*(contend(n) for n in range(CROWD)))
        assert len(runs) == 1
        assert await asyncio.gather(*(contend(n) for n in range(CROWD))) == runs * CROWD
    assert len(refused) == CROWD - 1


async def test_one_of_fifty_concurrent_threads_runs(client: Client) -> None:
    runs: list[int] = []
    refused = threading.Semaphore(0)
    begin = threading.Barrier(CROWD)

    def contend(n: int) -> Any:
        begin.wait(30)
        try:
            with idempotency_lock("k") as lock:
                if lock.already_executed:
                    return lock.cached_result
                runs.append(n)
                for _ in range(CROWD - 1):
                    assert refused.acquire(timeout=30)
                lock.set_result(n)
                return n
        except IdempotencyInFlightError:
            refused.release()

    with ThreadPoolExecutor(CROWD) as pool:
        await asyncio.to_thread(lambda: list(pool.map(contend, range(CROWD))))
        assert len(runs) == 1
        again = await asyncio.to_thread(lambda: list(pool.map(contend, range(CROWD))))
    assert again == runs * CROWD


# --- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ttl", [0, -1, 0.0001, float("nan"), float("inf"), 1e20, "1h", None, True, timedelta(-1)])
async def test_an_invalid_ttl_is_refused(ttl: Any) -> None:
    with pytest.raises(InvalidSubmissionError, match="ttl must be"):
        idempotency_lock("k", ttl)


@pytest.mark.parametrize("key", ["", None, 5, b"k", "\ud800", "x\ud800" * 5000])
async def test_an_invalid_key_is_refused(key: Any) -> None:
    with pytest.raises(InvalidSubmissionError, match="must be non-empty text"):
        idempotency_lock(key)


async def test_a_key_may_have_ten_kilobytes(client: Client, enter: Enter) -> None:
    long = "ü" * 5_000
    assert await run_once(enter, long + "1") == (False, "done")
    assert await run_once(enter, long + "2") == (False, "done"), "told apart by their last letter"
    assert await run_once(enter, long + "1") == (True, "done")
    assert len(spelled(client, long)) < 120
    client.run(client.ledger.lock(long, "another", 1000, "elsewhere"))
    with pytest.raises(IdempotencyInFlightError) as refused:
        await run_once(enter, long)
    assert len(str(refused.value)) < 400


async def test_a_ttl_may_be_a_timedelta(client: Client) -> None:
    with idempotency_lock("k", timedelta(hours=1)) as lock:
        lock.set_result(1)
    assert 3_600_000 < client.sync_store.command("PTTL", spelled(client)) <= 7_200_000


# --- inside tasks --------------------------------------------------------------------------------------------------


async def test_the_lock_of_a_lost_worker_is_free_at_once(client: Client, enter: Enter) -> None:
    lease, outside = lease_of(join(client)), contextvars.copy_context()

    async def dies() -> None:
        async with enter() as lock:
            client.run(client.ledger.revive(worker_id="boot", cause="killed"))
            elsewhere = asyncio.create_task(run_once(enter, result="in time"), context=outside)
            assert await elsewhere == (False, "in time")
            lock.set_result("late")

    with pytest.raises(LeaseLostError, match="was lost while its block ran"):
        await inside(lease, dies)
    assert await run_once(enter) == (True, "in time")


async def test_a_lost_worker_takes_no_lock(client: Client, enter: Enter) -> None:
    lease = lease_of(join(client))
    client.run(client.ledger.revive(worker_id="boot", cause="killed"))
    with pytest.raises(LeaseLostError, match="declared lost"):
        await inside(lease, lambda: run_once(enter))
    assert mark(client) is None


async def test_a_later_attempt_takes_over_at_once(client: Client, enter: Enter) -> None:
    boot = join(client)
    earlier, later = lease_of(boot, "t", 1_800_000_000_000_001), lease_of(boot, "t", 1_800_000_000_000_002)

    async def first() -> None:
        async with enter() as lock:
            lock.set_result("late")
            assert await inside(later, lambda: run_once(enter)) == (False, "done")

    with pytest.raises(LeaseLostError):
        await inside(earlier, first)
    assert await run_once(enter) == (True, "done")


async def test_another_task_of_the_same_worker_waits(client: Client, enter: Enter) -> None:
    boot = join(client)

    async def first() -> None:
        async with enter() as lock:
            lock.set_result("done")
            with pytest.raises(IdempotencyInFlightError):
                await inside(lease_of(boot), lambda: run_once(enter))

    await inside(lease_of(boot), first)


# --- lost ----------------------------------------------------------------------------------------------------------


async def lose(enter: Enter, loss: Callable[[], object], error: Exception | None = None) -> None:
    async with enter() as lock:
        loss()
        lock.set_result("mine")
        if error is not None:
            raise error


async def test_a_block_that_lost_its_key_raises(client: Client, enter: Enter) -> None:
    with pytest.raises(LeaseLostError, match="the result was not kept"):
        await lose(enter, lambda: take_over(client))
    assert b" anothers elsewhere.1 " in (mark(client) or b"")


async def test_a_block_whose_key_was_removed_raises(client: Client, enter: Enter) -> None:
    with pytest.raises(LeaseLostError):
        await lose(enter, lambda: client.sync_store.command("DEL", spelled(client)))
    assert mark(client) is None


async def test_an_exception_after_the_loss_is_raised_unchanged(client: Client, enter: Enter) -> None:
    with pytest.raises(ValueError, match="my own"):
        await lose(enter, lambda: take_over(client), ValueError("my own"))
    assert b" anothers elsewhere.1 " in (mark(client) or b""), "nobody frees another's"
