"""Locks in tasks: the task is put back while another caller holds the key, and takes the key over after a death."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from relier import Client, IdempotencyInFlightError, Retries, TaskState, idempotency_lock
from relier.engines.worker import Worker, WorkerOptions
from relier.failure import failure_of, read_failure
from relier.ledger.ledger import Ledger
from relier.ledger.records import Claimed, Lease, Task
from relier.run.isolated.messages import ChildError
from relier.run.outcome import Failed, in_flight_delay_ms, plan_of
from relier.settings import Settings
from relier.states import State
from tests.support import PYTHONPATH
from tests.support.jobs import locks as lock_jobs
from tests.support.locking import eventually, mark

pytestmark = pytest.mark.anyio
JOBS: list[Any] = [lock_jobs.charge, lock_jobs.charge_in_a_thread, lock_jobs.charge_alone]
Start = Callable[[], Any]


@pytest.fixture
def changed() -> dict[str, Any]:
    return {"heartbeat_ttl": 2.0, "resurrection_check_interval": 0.05}


@pytest.fixture
async def work(client: Client, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Start a worker in this process: work(). It runs until the test ends."""
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)  # of isolated processes
    running: list[tuple[Worker, asyncio.Task[int]]] = []

    def start() -> Worker:
        worker = Worker(client, WorkerOptions(modules=("tests.support.jobs.locks",)))
        running.append((worker, asyncio.create_task(worker.run())))
        return worker

    yield start
    for worker, task in running:
        worker.leave_now()
        await task


async def read(client: Client, task_id: str) -> Task:
    return await client.arun(client.ledger.get(task_id))


# --- put back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.fn.__name__)
async def test_a_task_that_meets_a_key_in_flight_is_put_back_and_runs_later(
    client: Client, work: Start, monkeypatch: pytest.MonkeyPatch, job: Any
) -> None:
    monkeypatch.setattr("relier.run.outcome.IN_FLIGHT_MS", 200)
    work()
    async with idempotency_lock("order") as lock:
        receipt = await job.apush("order")
        async with asyncio.timeout(30):
            while len((task := await read(client, receipt.id)).history) < 2:
                pass
        assert task.history[0].move == "retry"
        failure = read_failure(task.history[0].detail)
        assert failure.name == "IdempotencyInFlightError"
        assert "is in progress: process" in failure.message
        lock.set_result("9.99")
    assert await receipt.result(30) == "charged before: 9.99"
    assert (await read(client, receipt.id)).record.attempt == 1, "put back, it burnt no attempt"


async def test_a_put_back_task_is_due_after_five_seconds(client: Client, work: Start) -> None:
    work()
    async with idempotency_lock("order") as lock:
        receipt = await lock_jobs.charge.apush("order")
        async with asyncio.timeout(30):
            while (task := await read(client, receipt.id)).record.state is not State.SCHEDULED:
                pass
        due = await client.store.command("ZSCORE", f"{client.ledger.prefix}due", receipt.id)
        assert int(due) - task.record.moved_ms == 5000
        lock.set_result(1)


async def test_a_task_put_back_ten_times_becomes_a_dead_letter(
    client: Client, work: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relier.run.outcome.IN_FLIGHT_MS", 100)
    work()
    async with idempotency_lock("order") as lock:
        receipt = await lock_jobs.charge.apush("order")
        with pytest.raises(IdempotencyInFlightError, match="is in progress"):
            await receipt.result(60)
        lock.set_result(1)
    task = await read(client, receipt.id)
    assert (task.record.state, task.record.reason) == (State.DEAD, "IdempotencyInFlightError")
    moves = [entry.move for entry in task.history]
    assert moves[-1] == "bury"
    assert 1 <= moves.count("retry") <= 10


def claimed(waited_ms: int | None) -> Claimed:
    """Return a claimed task whose first put-back was this long before its claim; None: it was never put back."""
    ledger_now = 1_800_000_000_000
    record: Any = type("Record", (), {"moved_ms": ledger_now})()
    since = 0 if waited_ms is None else ledger_now - waited_ms
    return Claimed(Lease("t", "1", "b"), record, b"", locked_since_ms=since)


IN_FLIGHT = IdempotencyInFlightError("the key is in progress")


@pytest.mark.parametrize("waited", [None, 0, 1, 5_000, 45_000, 49_999])
def test_a_locked_task_is_put_back_for_five_seconds(settings: Settings, waited: int | None) -> None:
    assert in_flight_delay_ms(claimed(waited)) == 5000
    for retries in (None, Retries(attempts=0), Retries(never_on=IdempotencyInFlightError)):
        call = plan_of(Ledger(settings), claimed(waited), Failed(IN_FLIGHT), retries, 0).call
        assert call is not None
        assert (call.script, call.args[4:6]) == ("retry", (5000, "locked"))


def test_earlier_put_backs_for_other_reasons_do_not_count(settings: Settings) -> None:
    record: Any = type("Record", (), {"moved_ms": 1_800_000_000_000})()
    task = Claimed(Lease("t", "1", "b"), record, b"", since_ms=1_800_000_000_000 - 9 * 60_000)
    call = plan_of(Ledger(settings), task, Failed(IN_FLIGHT), None, 1_800_000_000_000).call
    assert call is not None
    assert call.script == "retry"


@pytest.mark.parametrize("waited", [50_000, 50_001, 10_000_000])
def test_a_locked_task_is_buried_after_fifty_seconds(settings: Settings, waited: int) -> None:
    assert in_flight_delay_ms(claimed(waited)) is None
    call = plan_of(Ledger(settings), claimed(waited), Failed(IN_FLIGHT), Retries(attempts=99), 0).call
    assert call is not None
    assert (call.script, call.args[4]) == ("bury", "IdempotencyInFlightError")


def test_a_task_is_put_back_ten_times_at_most(settings: Settings) -> None:
    """Each run comes at least five seconds after the one before."""
    for late in (0, 1, 700, 20_000):
        waited, times = None, 0
        while in_flight_delay_ms(claimed(waited)) is not None:
            times += 1
            waited = 5000 + late if waited is None else waited + 5000 + late
        assert times <= 10
        assert times == 10 or late


@pytest.mark.parametrize("error", [ValueError("x"), ChildError("x"), KeyError()])
def test_other_failures_are_retried_as_before(settings: Settings, error: Exception) -> None:
    for retries, move in ((None, "bury"), (Retries(attempts=1), "retry")):
        call = plan_of(Ledger(settings), claimed(None), Failed(error), retries, 0).call
        assert call is not None
        assert call.script == move
        assert "locked" not in call.args


def test_the_error_is_recognised_when_it_comes_from_another_process() -> None:
    assert isinstance(failure_of(IN_FLIGHT).rebuild(), IdempotencyInFlightError)


# --- taken over ----------------------------------------------------------------------------------------------------

WORKER = """
import asyncio, sys
from relier.engines.worker import WorkerOptions
from relier.engines.process import StopSignals, work
from relier.settings import get_settings
from tests.support.jobs import locks as lock_jobs
asyncio.run(work(get_settings(), WorkerOptions(sweep=False), StopSignals(30.0)))
"""


def start_worker(settings: Settings) -> subprocess.Popen[bytes]:
    told = {name: str(getattr(settings, name)) for name in ("redis_url", "namespace", "heartbeat_ttl")}
    env = os.environ | {f"RELIER_{name.upper()}": value for name, value in told.items()}
    return subprocess.Popen([sys.executable, "-c", WORKER], env=env | {"PYTHONPATH": PYTHONPATH})


@contextlib.asynccontextmanager
async def worker_process(settings: Settings) -> AsyncIterator[subprocess.Popen[bytes]]:
    process = start_worker(settings)
    try:
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.wait, 20)


async def test_a_killed_worker_frees_its_key_with_its_tasks(client: Client, work: Start, tmp_path: Path) -> None:
    """Its mark would last for two minutes. The task runs again as soon as its worker is declared lost."""
    entered = tmp_path / "entered"
    async with worker_process(client.settings) as process:
        receipt = await lock_jobs.charge_slowly.apush("order", str(entered))
        await eventually(lambda: entered.exists() and entered.read_text().count("\n") == 1, 60)
        with pytest.raises(IdempotencyInFlightError, match=f"task {receipt.id} on worker"):
            await idempotency_lock("order").__aenter__()
        process.send_signal(signal.SIGKILL)
        work()
        assert await receipt.result(60) == "charged now"
    first, second = entered.read_text().split()
    assert int(first) < int(second)
    assert (mark(client, "order") or b"").startswith(b"done")
    assert await receipt.state() is TaskState.DONE
