"""Recycling by task count or memory drains the worker first: no task is lost, no attempt is used up, and work
continues."""

from __future__ import annotations

import signal
import time

import pytest

from tests.engines.conftest import NewFleet
from tests.support.fleet import Fleet, wait_until
from tests.support.jobs import common as jobs
from tests.support.jobs import trouble
from tests.support.servers import Boot

TROUBLE = ("tests.support.jobs.common", "tests.support.jobs.trouble")
AWAY_S = 13.0


@pytest.mark.parametrize("processes", [(), ("--processes", "1")], ids=["one process", "a supervisor"])
def test_a_worker_is_recycled_after_max_tasks(patient: Fleet, processes: tuple[str, ...]) -> None:
    member = patient.worker("--max-tasks", "50", "--concurrency", "10", *processes)
    ids = [jobs.quick.push().id for _ in range(200)]
    tasks = patient.wait_done(ids, 60)
    assert {task.result for task in tasks} == {b"1"}
    assert len(patient.diary("begin")) == 200
    member.wait_said("is recycled", 3)
    assert len(member.boots()) >= 4
    assert member.terminate() == 0


def test_max_tasks_may_be_lower_than_the_concurrency(patient: Fleet) -> None:
    """All tasks are claimed at once, so more than that number had started before the first one ended."""
    member = patient.worker("--max-tasks", "5", "--concurrency", "100")
    ids = [jobs.hold.push("go").id for _ in range(50)]
    patient.wait_diary("begin", 50)
    patient.open_gate("go")
    patient.wait_done(ids)
    member.wait_said("is recycled")
    member.wait_said(" started: queues=", 2)


def test_recycling_waits_for_running_tasks(patient: Fleet) -> None:
    member = patient.worker("--max-tasks", "5", "--concurrency", "10")
    held = [jobs.hold.push("go").id for _ in range(2)]
    patient.wait_diary("begin", 2)
    patient.wait_done([jobs.quick.push().id for _ in range(10)][:3])
    member.wait_said("is recycled")
    patient.open_gate("go")
    tasks = patient.wait_done(held)
    assert [task.result for task in tasks] == [b"1"] * 2
    member.wait_said(" started: queues=", 2)


@pytest.mark.parametrize("processes", [(), ("--processes", "1")], ids=["one process", "a supervisor"])
def test_a_worker_is_recycled_above_max_rss(patient: Fleet, processes: tuple[str, ...]) -> None:
    member = patient.worker("--max-rss-mb", "150", *processes, modules=TROUBLE)
    held = jobs.hold.push("go").id
    patient.wait_diary("begin", 1)
    hoarder = trouble.hoard.push(150)
    hoarder.result(20)
    member.wait_said("its memory grew over 150 MB")
    patient.open_gate("go")
    (task,) = patient.wait_done([held])
    assert task.result == b"1"
    member.wait_said(" started: queues=", 2)
    patient.wait_done([jobs.quick.push().id])
    assert len(member.boots()) == 2


def test_sigterm_during_recycling_stops_the_worker(patient: Fleet) -> None:
    """The worker waits for a task that still runs, then ends for good."""
    member = patient.worker("--max-tasks", "2")
    held = jobs.hold.push("go").id
    patient.wait_diary("begin", 1)
    patient.wait_done([jobs.quick.push().id])
    member.wait_said("is recycled")
    member.signal(signal.SIGTERM)
    patient.let_pass(0.5)
    patient.open_gate("go")
    assert member.wait(20) == 0
    patient.wait_done([held])
    assert len(member.boots()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("processes", [(), ("--processes", "1")], ids=["one process", "a supervisor"])
def test_a_worker_does_not_restart_before_the_store_has_its_results(
    boot: Boot, fleets: NewFleet, processes: tuple[str, ...]
) -> None:
    """The store is unreachable for longer than a worker that shuts down would wait."""
    server = boot()
    fleet = fleets(60, on=server)
    member = fleet.worker("--max-tasks", "1", *processes, RELIER_GRACEFUL_SHUTDOWN_TIMEOUT="0")
    held = jobs.hold.push("go").id
    fleet.wait_diary("begin", 1)
    server.freeze()
    frozen = time.monotonic()
    fleet.open_gate("go")
    member.wait_said("is recycled")
    wait_until(lambda: time.monotonic() > frozen + AWAY_S)
    server.thaw()
    (task,) = fleet.wait_done([held], 30)
    assert task.result == b"1"
    assert len(fleet.diary("begin")) == 1
    member.wait_said(" started: queues=", 2)


def test_a_limit_that_no_worker_can_keep_is_refused(patient: Fleet) -> None:
    """Otherwise the worker would restart forever, and run nothing."""
    member = patient.start("worker", "tests.support.jobs.common", "--max-rss-mb", "10")
    assert member.wait(20) in (1, 2)
    assert "--max-rss-mb" in member.said()
