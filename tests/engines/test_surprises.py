"""Whatever a task does, it ends with an outcome that is reported, and its worker continues."""

from __future__ import annotations

import os
import resource
import signal
from typing import Any

import pytest

from relier.ledger import keys
from relier.states import State
from tests.support.fleet import Fleet, Member, wait_until
from tests.support.jobs import common as jobs
from tests.support.jobs import slow_import as slow
from tests.support.jobs import surprises

DEATHS = [
    (surprises.exit_async, "SystemExit"),
    (surprises.exit_thread, "SystemExit"),
    (surprises.interrupt, "KeyboardInterrupt"),
    (surprises.cancel_oneself, "CancelledError"),
    (surprises.raise_group, "BaseExceptionGroup"),
    (surprises.return_strange, "PayloadEncodingError"),
    (surprises.return_half, "PayloadEncodingError"),
    (surprises.return_half_alone, "PayloadEncodingError"),
    (surprises.fail, "ValueError"),
    (surprises.fail_unspeakably_alone, "ChildError"),
    (surprises.fail_strangely, "Strange"),
]


def test_every_way_to_fail_is_a_dead_letter(patient: Fleet) -> None:
    """The worker continues: the same worker id claims the next task."""
    member = patient.worker(modules=("tests.support.jobs.common", "tests.support.jobs.surprises"))
    ids = [job.push().id for job, _ in DEATHS]
    tasks = patient.wait_ended(ids, 20)
    told = {task.record.name.rpartition(".")[2]: (task.record.state, task.record.reason) for task in tasks}
    assert told == {job.fn.__name__: (State.DEAD, reason) for job, reason in DEATHS}
    assert jobs.echo.push("next").result(10) == "next"
    assert member.process.poll() is None
    assert len(member.boots()) == 1


def test_an_argument_that_exits_is_a_dead_letter(patient: Fleet) -> None:
    """Neither the worker nor any other task ends."""
    member = patient.worker(modules=("tests.support.jobs.common", "tests.support.jobs.surprises"))
    beside = jobs.hold.push("go")
    patient.wait_diary("begin", 1)
    (task,) = patient.wait_ended([surprises.configured.push(surprises.Config("settings.toml")).id])
    assert (task.record.state, task.record.reason) == (State.DEAD, "SystemExit")
    assert "settings.toml is missing" in task.history[-1].detail
    patient.open_gate("go")
    assert beside.result(10) == 1
    assert len(member.boots()) == 1


@pytest.mark.parametrize("job", [surprises.bad_hook, surprises.bad_async_hook], ids=["def", "async def"])
def test_a_hook_that_exits_changes_nothing(patient: Fleet, job: Any) -> None:
    member = patient.worker(modules=("tests.support.jobs.common", "tests.support.jobs.surprises"))
    receipt = job.push()
    (task,) = patient.wait_done([receipt.id], 15)
    assert task.result == b"1"
    assert len(member.boots()) == 1
    assert member.process.poll() is None


@pytest.mark.parametrize("job", [surprises.end_children, surprises.end_children_alone], ids=["here", "isolated"])
def test_a_task_ends_the_processes_it_started_and_not_its_worker(patient: Fleet, job: Any) -> None:
    """A forked process inherits its worker's signal handling."""
    member = patient.worker(modules=("tests.support.jobs.common", "tests.support.jobs.surprises"))
    assert job.push().result(40) == [-signal.SIGTERM, -signal.SIGTERM]
    assert jobs.echo.push("next").result(10) == "next"
    assert len(member.boots()) == 1
    assert " stopped" not in member.said()
    assert member.terminate(20) == 0


def test_a_task_that_exits_its_process_ends_as_a_dead_letter(patient: Fleet) -> None:
    patient.worker("--processes", "1", modules=("tests.support.jobs.surprises",))
    (task,) = patient.wait_ended([surprises.exit_process.push().id], 20)
    assert (task.record.state, task.record.reason) == (State.DEAD, "max_resurrections_exceeded")
    assert len(patient.diary("begin")) == 2
    assert all("exited with code 0" in entry.detail for entry in task.history)


def test_a_task_whose_isolated_process_cannot_start_is_reported(patient: Fleet) -> None:
    """There are no file descriptors left: the task is put back, and runs when there are some."""
    member = worker_without_files(patient)
    receipt = surprises.alone.push()
    wait_until(lambda: receipt.info().record.state is State.SCHEDULED, what="a put back task")
    allow_files(member, 1024)
    patient.wait_done([receipt.id], 20)
    assert receipt.info().record.attempt == 1
    assert len(member.boots()) == 1


def test_a_task_is_cancelled_while_its_process_starts(fleet: Fleet) -> None:
    """The process hangs in an import, because a server that a module connects to is unreachable."""
    member = fleet.worker(
        modules=("tests.support.jobs.common", "tests.support.jobs.slow_import"), FLEET_ISOLATED_IMPORT_S="3600"
    )
    receipt = slow.brief.push()
    wait_until(lambda: member.children(), what="an isolated process")
    assert receipt.cancel()
    (task,) = fleet.wait_ended([receipt.id])
    assert task.record.state is State.CANCELLED
    wait_until(lambda: not member.children(), what="the end of the process")
    assert len(member.boots()) == 1


@pytest.mark.parametrize(("level", "asides"), [("error", 0), ("info", 1)])
def test_an_isolated_process_logs_at_the_level_of_its_worker(patient: Fleet, level: str, asides: int) -> None:
    member = patient.start("worker", "tests.support.jobs.surprises", "--log-level", level)
    patient.wait_done([surprises.talk_alone.push().id])
    assert member.wait_said("a complaint").count("an aside") == asides


def worker_without_files(fleet: Fleet) -> Member:
    """Return a worker that can open a few connections, but has too few file descriptors left to start a process."""
    member = fleet.worker(modules=("tests.support.jobs.common", "tests.support.jobs.surprises"))
    jobs.echo.push("all connections are open").result(10)
    opened = {int(name) for name in os.listdir(f"/proc/{member.pid}/fd")}
    allow_files(member, next(n for n in range(1024) if n - sum(one < n for one in opened) == 3))
    return member


def allow_files(member: Member, count: int) -> None:
    """Set the number of files that its process may have open from now on."""
    _, most = resource.prlimit(member.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(member.pid, resource.RLIMIT_NOFILE, (count, most))


def test_threads_left_behind_by_a_task_do_not_delay_the_exit(patient: Fleet) -> None:
    member = patient.worker(modules=("tests.support.jobs.surprises",))
    assert surprises.leave_behind.push().result(10) == 1
    assert member.terminate(10) == 0


def test_an_isolated_task_is_not_put_back_for_ever(patient: Fleet) -> None:
    """The limit of ten minutes applies here, too: then the task becomes a dead letter."""
    worker_without_files(patient)
    receipt = surprises.alone.push()
    wait_until(lambda: receipt.info().record.state is State.SCHEDULED, what="a put back task")
    more = keys.spell(patient.ledger.prefix, "more", receipt.id)
    patient.store.command("HSET", more, "since", str(int(patient.now() * 1000) - 600_001))
    (task,) = patient.wait_ended([receipt.id], 20)
    assert (task.record.state, task.record.reason) == (State.DEAD, "OSError")
