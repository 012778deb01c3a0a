"""Isolated processes, as their parent sees them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relier import Client, Settings, TaskContext, TaskState, WorkerInitializationError, rl_task, use_client
from relier.envelope import seal
from relier.ledger.records import Claimed, Lease, Record, Spec
from relier.run.attempt import Attempt, open_attempt
from relier.run.channel import LedgerChannel
from relier.run.execute import stop
from relier.run.isolated.child_runner import ChildRunner
from relier.run.isolated.processes import IsolatedProcess, IsolatedProcesses
from relier.run.outcome import Died, Done, Failed, HandBack, Outcome
from relier.states import State
from relier.store.call import Durability
from relier.submit.client import default_client
from relier.task import RlTask
from tests.support import PYTHONPATH, ROOT
from tests.support.conformance import tasks
from tests.support.conformance.signals import note, notes
from tests.support.servers import Server, wait_until

LONG = math.inf  # its lease can be trusted


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    client = Client(settings)
    use_client(client)
    yield client
    use_client(None)
    client.close()


def attempt_of(task: RlTask[Any, Any], *args: Any) -> Attempt:
    spec = Spec(1, 0, None, None, None, None, None, None, None, "retry", Durability.MEMORY)
    record = Record("id", State.RUNNING, 2, "17", "boot", 1, "", 1, spec, "default", task.name)
    payload = seal(task.arguments.encode(args, {}), schema_version=1, pushed_ms=1)
    attempt = open_attempt(Claimed(Lease("id", "17", "boot"), record, payload), LedgerChannel(default_client()))
    assert isinstance(attempt, Attempt)
    return attempt


async def start_child(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> IsolatedProcess:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    return await IsolatedProcess.start(("tests.support.conformance.tasks",), settings)


@pytest.mark.anyio
async def test_one_process_runs_one_attempt_after_another(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    child = await start_child(settings, monkeypatch)
    assert await child.run(attempt_of(tasks.add, 2, 3), LONG) == Done(b"5")
    assert await child.run(attempt_of(tasks.nothing), LONG) == Done(None)
    failed = await child.run(attempt_of(tasks.decline, "stolen", 5), LONG)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, tasks.DeclinedError)
    assert failed.failure is not None
    assert "raise DeclinedError" in failed.failure.traceback
    assert child.usable
    await child.end()
    assert not child.usable


@pytest.mark.anyio
async def test_a_failure_whose_class_exists_only_in_the_child_keeps_its_name(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = await start_child(settings, monkeypatch)
    failed = await child.run(attempt_of(tasks.fail_strangely), LONG)
    assert isinstance(failed, Failed)
    assert failed.failure is not None
    assert failed.failure.name == "StrangeError"
    await child.end()


@pytest.mark.anyio
async def test_a_process_that_does_not_stop_is_killed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    child = await start_child(settings, monkeypatch)
    attempt = attempt_of(tasks.sleep_in_c, str(tmp_path))
    running = asyncio.create_task(child.run(attempt, LONG))
    await asyncio.to_thread(wait_until, (tmp_path / "runs").exists)
    stop(attempt, HandBack())
    assert await running == HandBack()
    assert not child.usable
    await child.end()


@pytest.mark.anyio
async def test_a_process_that_dies_is_reported_with_its_cause(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    child = await start_child(settings, monkeypatch)
    outcome: Outcome = await child.run(attempt_of(tasks.kill_own_process, str(tmp_path)), LONG)
    assert isinstance(outcome, Died)
    assert "signal 9 (SIGKILL)" in outcome.cause
    assert not child.usable
    await child.end()


@pytest.mark.anyio
async def test_a_death_is_noticed_while_a_subprocess_of_the_task_survives(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The subprocess holds the connection open."""
    child = await start_child(settings, monkeypatch)
    try:
        async with asyncio.timeout(20):
            outcome = await child.run(attempt_of(tasks.die_and_leave_a_child, str(tmp_path)), LONG)
    finally:
        note(tmp_path, "end")
    assert isinstance(outcome, Died)
    assert "signal 9 (SIGKILL)" in outcome.cause
    await child.end()


@pytest.mark.anyio
async def test_a_process_that_closed_its_connection_is_killed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = await start_child(settings, monkeypatch)
    async with asyncio.timeout(20):
        outcome = await child.run(attempt_of(tasks.hang_up), LONG)
    assert isinstance(outcome, Died)
    assert not child.usable
    await child.end()


@pytest.mark.anyio
async def test_a_process_that_cannot_import_the_tasks_reports_why(settings: Settings) -> None:
    with pytest.raises(WorkerInitializationError, match="exited with code 1"):
        await IsolatedProcess.start(("no.such.module",), settings)


@pytest.mark.anyio
async def test_a_process_that_hangs_while_it_imports_is_given_up(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = isolated_children()
    monkeypatch.setattr("relier.run.isolated.processes.START_S", 0.5)
    (tmp_path / "hangs.py").write_text("import time; time.sleep(3600)")
    with pytest.raises(WorkerInitializationError, match=r"did not import its modules within 0\.5 s"):
        async with asyncio.timeout(20):
            await IsolatedProcess.start((str(tmp_path / "hangs.py"),), settings)
    assert not isolated_children() - before


def isolated_children() -> set[str]:
    """Return the isolated children of this process, as the system lists them."""
    found = set()
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(os.getpid()) and b"relier.run.isolated.child" in (folder / "cmdline").read_bytes():
                found.add(folder.name)
    return found


@pytest.mark.anyio
async def test_a_start_that_is_given_up_leaves_no_process_behind(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the attempt that needed the process is cancelled meanwhile."""
    before = isolated_children()
    starting = asyncio.create_task(start_child(settings, monkeypatch))
    async with asyncio.timeout(20):
        while not isolated_children() - before:  # noqa: ASYNC110 - what is waited for is outside
            await asyncio.sleep(0.005)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await asyncio.to_thread(wait_until, lambda: not isolated_children() - before, 10, "the process has ended")


@pytest.mark.anyio
async def test_a_backlog_without_free_processes_returns_with_growing_delays(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delay grows until a process is idle, because an idle process should not have to wait for tasks."""
    monkeypatch.setattr("relier.run.isolated.processes.GROW_S", 0)
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    isolates = IsolatedProcesses(("tests.support.conformance.tasks",), 1, settings)
    assert [isolates.admit() for _ in range(2)] == [True, True]
    assert not isolates.admit()
    assert isolates.backoff.most_ms == 5_000, "its process has not even started"
    stays = []
    async with isolates.process_for(attempt_of(tasks.nothing)):
        for _ in range(6):
            assert not isolates.admit()
            stays.append(isolates.backoff.most_ms)
    assert stays == [7_500, 11_250, 16_875, 25_312, 30_000, 30_000]
    assert isolates.backoff.most_ms == 30_000, "another waits for the process"
    async with isolates.process_for(attempt_of(tasks.nothing)):
        pass
    assert isolates.backoff.most_ms == 5_000
    await isolates.close()


@pytest.mark.anyio
async def test_a_stop_signal_right_after_the_start_is_obeyed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    child = await start_child(settings, monkeypatch)
    attempt = attempt_of(tasks.wait, str(tmp_path))
    running = asyncio.create_task(child.run(attempt, LONG))
    await asyncio.sleep(0)  # it is sent
    stop(attempt, HandBack())
    assert await running == HandBack()
    assert notes(tmp_path, "runs") == [] or notes(tmp_path, "stopped") == ["1"]
    await child.end()


def test_tasks_pushed_by_an_isolated_task_go_to_its_workers_namespace(
    client: Client, server: Server, settings: Settings, tmp_path: Path
) -> None:
    env = os.environ | {"RELIER_REDIS_URL": server.url, "RELIER_NAMESPACE": f"not-{settings.namespace}"}
    command = [sys.executable, "-m", "relier.cli", "worker", "tests.support.conformance.tasks"]
    command += ["--url", server.url, "--namespace", settings.namespace]
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
    try:
        child = tasks.parent_alone.push(1).result(30)
        assert tasks.add.sync_receipt(child).state() is not TaskState.NOT_FOUND
        assert tasks.add.sync_receipt(child).result(30) == 2
    finally:
        worker.terminate()
        worker.wait(20)


hook_began = asyncio.Event()


async def slow_hook(_: TaskContext) -> None:
    hook_began.set()
    await asyncio.Event().wait()


@rl_task(name="isolated.ends_during_its_hook", on_soft_timeout=slow_hook)
async def ends_during_its_hook() -> int:
    await hook_began.wait()
    return 5


@pytest.mark.anyio
async def test_a_slow_hook_costs_a_finished_task_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outcome does not wait for the hook, and a stop that comes meanwhile does not replace the outcome."""
    monkeypatch.setattr("relier.run.isolated.child_runner.HOOK_S", 600.0)
    runner = ChildRunner(LedgerChannel(client))
    attempt = runner.open(attempt_of(ends_during_its_hook).claimed, lambda: LONG)
    assert isinstance(attempt, Attempt)
    running = asyncio.create_task(runner.run(attempt))
    runner.warn()
    assert await asyncio.wait_for(running, 10) == Done(b"5")
    runner.stop(lost=False)
    assert attempt.stop is None
    monkeypatch.setattr("relier.run.isolated.child_runner.HOOK_S", 0.0)
    await runner.end_hook()
