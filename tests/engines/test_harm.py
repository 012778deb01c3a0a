"""Tasks whose code harms other tasks or their worker: both continue, and the task can be stopped."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from relier.states import State
from tests.support.fleet import Fleet
from tests.support.jobs import common as jobs
from tests.support.jobs import harm

MODULES = ("tests.support.jobs.common", "tests.support.jobs.harm")


def test_a_task_that_cancels_all_asyncio_tasks_harms_no_other_task_and_no_worker(patient: Fleet) -> None:
    member = patient.worker(modules=MODULES)
    kinds = (jobs.hold, jobs.hold_thread, jobs.hold_isolated, harm.hold_branches)
    ids = [kind.push("go").id for kind in kinds for _ in range(5 if kind is not jobs.hold_isolated else 2)]
    patient.wait_diary("begin", 17)
    evil = [harm.cancel_everybody.push().id for _ in range(3)]
    patient.wait_diary("cancelled", 3)
    patient.wait_done(evil)
    patient.open_gate("go")
    tasks = patient.wait_done(ids)
    assert {task.result for task in tasks} == {b"1"}, "who was disturbed runs again as the attempt it was"
    assert jobs.echo.push("next").result(10) == "next"
    assert len(member.boots()) == 1
    assert member.terminate(20) == 0


def test_cancelling_all_asyncio_tasks_is_harmless_in_an_isolated_process(patient: Fleet) -> None:
    patient.worker(modules=MODULES)
    assert [harm.cancel_everybody_alone.push().result(20) for _ in range(2)] == [1, 1]


def test_a_task_that_cancels_a_part_of_itself_has_failed(patient: Fleet) -> None:
    patient.worker(modules=MODULES)
    (task,) = patient.wait_ended([harm.cancel_a_part.push().id])
    assert (task.record.state, task.record.reason) == (State.DEAD, "CancelledError")


@pytest.mark.parametrize("job", [harm.stop_the_loop, harm.stop_the_loop_alone], ids=["here", "isolated"])
def test_a_task_that_stops_the_loop_harms_nobody(patient: Fleet, job: Any) -> None:
    member = patient.worker(modules=MODULES)
    beside = jobs.hold.push("go")
    patient.wait_diary("begin", 1)
    patient.wait_done([job.push().id for _ in range(3)])
    patient.open_gate("go")
    assert beside.result(10) == 1
    assert len(member.boots()) == 1


@pytest.mark.parametrize(
    "job",
    [
        harm.fork_and_return,
        harm.fork_and_wait,
        harm.fork_and_raise,
        harm.fork_in_a_branch,
        harm.fork_in_a_thread,
        harm.fork_alone,
        harm.fork_in_a_thread_alone,
    ],
    ids=lambda job: job.fn.__name__,
)
def test_a_task_that_forks_and_returns_in_both_processes(patient: Fleet, job: Any) -> None:
    """The copy ends where the task's code ends or awaits. It runs no other tasks, and reads no replies meant for the
    worker."""
    member = patient.worker(modules=MODULES)
    beside = [jobs.hold.push("go").id for _ in range(5)]
    patient.wait_diary("begin", 5)
    ids = [job.push().id for _ in range(3)]
    ended = {(task.record.state, task.result) for task in patient.wait_ended(ids)}
    raised = job is harm.fork_and_raise
    assert ended == ({(State.DEAD, None)} if raised else {(State.DONE, b"true")})
    assert len(patient.diary("forked")) == 6, "in both processes"
    assert len(patient.diary("waited")) == (3 if job is harm.fork_and_wait else 0), "a copy does not wait"
    member.wait_said("also returned from the task's code", 3)
    patient.open_gate("go")
    patient.wait_done(beside)
    assert len(patient.diary("end")) == 5
    assert [jobs.echo.push(n).result(10) for n in range(20)] == list(range(20))
    assert member.terminate(20) == 0
    assert not member.session(), "no copy is left"


def test_a_task_that_ignores_signals_does_not_make_its_worker_ignore_them(patient: Fleet) -> None:
    member = patient.worker(modules=MODULES)
    patient.wait_done([harm.ignore.push().id])
    member.wait_said("a task replaced the handler of SIGTERM; the worker has reinstalled its own")
    member.wait_said("a task replaced the handler of SIGINT; the worker has reinstalled its own")
    assert member.terminate(20) == 0


@pytest.mark.slow
def test_a_supervisor_kills_a_worker_that_ignores_signals(patient: Fleet) -> None:
    member = patient.worker("--processes", "1", modules=MODULES, RELIER_GRACEFUL_SHUTDOWN_TIMEOUT="0.1")
    task_id = harm.ignore_and_block.push("go").id
    patient.wait_diary("begin", 1)
    assert member.terminate(40) == 3
    assert not member.session()
    assert patient.get(task_id).record.state is State.QUEUED, "its task is returned at once"
    patient.open_gate("go")
    patient.worker(modules=MODULES)
    assert [task.result for task in patient.wait_done([task_id])] == [b"2"]


def test_an_isolated_process_that_ignores_orders_is_killed(patient: Fleet) -> None:
    member = patient.worker(modules=MODULES, RELIER_GRACEFUL_SHUTDOWN_TIMEOUT="0.1")
    task_id = harm.ignore_and_block_alone.push("go").id
    patient.wait_diary("begin", 1)
    member.signal(signal.SIGTERM)
    assert member.wait(20) == 3
    assert not member.session()
    assert patient.get(task_id).record.state is State.QUEUED
    patient.open_gate("go")
    patient.worker(modules=MODULES)
    assert [task.result for task in patient.wait_done([task_id])] == [b"1"]
