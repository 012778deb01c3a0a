"""Jobs between the ledger's loop and Celery's main thread: each is taken once, and has one outcome."""

from __future__ import annotations

import asyncio
import select
from types import SimpleNamespace
from typing import Any

import pytest
from billiard.exceptions import WorkerLostError

from relier.celery.working.jobs import Job, Jobs
from relier.celery.working.request import exit_cause
from relier.run.outcome import Died, Done, HandBack
from tests.support.servers import wait_until

pytestmark = pytest.mark.anyio


def job_of(started: list[Job] | None = None) -> Job:
    attempt: Any = SimpleNamespace(claimed=None, began=None)
    return Job(attempt, asyncio.get_running_loop(), (started if started is not None else []).append)


def is_awake(jobs: Jobs) -> bool:
    return bool(select.select([jobs.fileno()], [], [], 0)[0])


async def test_a_job_wakes_the_main_thread_and_is_taken_once() -> None:
    jobs, job = Jobs(), job_of()
    jobs.give(job)
    assert is_awake(jobs)
    assert jobs.take() == [job]
    assert jobs.take() == []
    assert not is_awake(jobs)


async def test_the_first_end_counts() -> None:
    job = job_of()
    job.settle(HandBack())
    job.settle(Done(b"1"))
    assert await job.future == HandBack()
    assert job.ended


async def test_a_result_reported_before_the_process_died_counts() -> None:
    job = job_of()
    job.process_died("gone", grace=0.01)
    job.settle(Done(b"1"))
    assert await job.future == Done(b"1")


async def test_a_report_of_how_a_process_ended_counts_even_after_its_end_was_noticed() -> None:
    job = job_of()
    job.process_died("", grace=0.05)
    job.process_died("it exited with code 9", grace=0)
    assert await job.future == Died("it exited with code 9")
    other = job_of()
    other.process_died("", grace=0)
    assert await other.future == Died("its process is gone")


async def test_the_tasks_own_exit_code_wins_over_the_pools() -> None:
    job = job_of()
    job.own_exit = "it exited with code 3"
    job.process_died(job.own_exit, grace=0.05)
    job.process_died("it exited with code 0", grace=0)  # the pool's process goes on to its own end
    assert await job.future == Died("it exited with code 3")


@pytest.mark.parametrize(
    ("code", "means"), [(3, "with code 3"), (None, "with code 0"), ("words", "with code 1"), (-1, "with code 255")]
)
async def test_an_exit_is_reported_with_its_code(code: Any, means: str) -> None:
    assert exit_cause(SystemExit(code)).endswith(means)
    assert exit_cause(KeyboardInterrupt()) == "KeyboardInterrupt"


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("Worker exited prematurely: exitcode 9 Job: 39.", "exited with code 9"),
        ("Worker exited prematurely: signal 9 (SIGKILL) Job: 39.", "signal 9 (SIGKILL)"),
    ],
)
async def test_billiards_description_of_an_exit_is_translated(text: str, means: str) -> None:
    assert means in exit_cause(WorkerLostError(text))


async def test_the_main_thread_is_unresponsive_until_it_takes_a_job() -> None:
    """This is still true after its jobs were taken back. Otherwise it would get more jobs that it does not take."""
    jobs, job = Jobs(), job_of()
    assert not jobs.unresponsive_for(0)
    jobs.give(job)
    wait_until(lambda: jobs.unresponsive_for(0.005))
    assert jobs.take_back() == [job]
    assert jobs.unresponsive_for(0.005)
    assert is_awake(jobs)
    assert jobs.take() == []
    assert not jobs.unresponsive_for(0)


async def test_jobs_that_have_not_started_are_handed_back_at_shutdown() -> None:
    started: list[Job] = []
    jobs, waiting, taken, running = Jobs(), job_of(), job_of(), job_of(started)
    for job in (taken, running):
        jobs.give(job)
    jobs.take()
    running.in_pool = True
    running.started(1)
    jobs.give(waiting)
    jobs.hand_back_unstarted(0.05)
    assert [await job.future for job in (waiting, taken)] == [HandBack(), HandBack()]
    assert started == [running]
    assert not running.future.done()


async def test_a_job_in_the_pool_gets_time_to_report_that_it_started() -> None:
    jobs, job = Jobs(), job_of()
    jobs.give(job)
    jobs.take()
    job.in_pool = True
    jobs.hand_back_unstarted(0.05)
    job.started(1)
    job.settle(Done(b"1"))
    assert await job.future == Done(b"1")


async def test_a_lost_broker_costs_only_jobs_that_celery_took_and_had_not_started() -> None:
    jobs, waiting, taken = Jobs(), job_of(), job_of()
    jobs.give(taken)
    jobs.take()
    taken.request = object()
    jobs.give(waiting)
    jobs.hand_back_forgotten()
    assert await taken.future == HandBack()
    assert not waiting.future.done()
    assert jobs.take() == [waiting]
