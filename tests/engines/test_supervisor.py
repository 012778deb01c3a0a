"""`--processes N`: a parent that notices the death of a child, returns its tasks at once, and distinguishes a busy
child from a dead one."""

from __future__ import annotations

import signal
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from relier.states import State
from tests.support.fleet import Fleet, wait_until
from tests.support.jobs import common as jobs
from tests.support.jobs import trouble

TROUBLE = ("tests.support.jobs.common", "tests.support.jobs.trouble")


def test_a_killed_childs_tasks_are_returned_at_once(patient: Fleet) -> None:
    member = patient.worker("--processes", "2")
    ids = [jobs.hold.push("go").id for _ in range(40)]
    ran = patient.wait_diary("begin", 40)
    victim = ran[0].pid
    member.signal(signal.SIGKILL, victim)
    again = patient.wait_diary("begin", 40 + sum(line.pid == victim for line in ran), 10)
    patient.open_gate("go")
    tasks = patient.wait_done(ids, 10)
    lost = {line.task_id for line in ran if line.pid == victim}
    assert {line.task_id for line in again if line.attempt == 2} == lost
    assert [task.record.id for task in tasks if task.result == b"2"] == [i for i in ids if i in lost]
    deaths = [entry for task in tasks for entry in task.history]
    assert {entry.move for entry in deaths} == {"revive"}
    assert all("SIGKILL" in entry.detail for entry in deaths)


def test_a_killed_child_is_replaced(patient: Fleet) -> None:
    member = patient.worker("--processes", "2")
    for round_ in range(2):
        member.signal(signal.SIGKILL, member.started()[round_])
        member.wait_said(" started: queues=", 3 + round_)
    assert len(member.children()) == 2
    wait_until(lambda: len(patient.stats().workers) == 2, what="the dead boots gone")
    ids = [jobs.quick.push().id for _ in range(10)]
    patient.wait_done(ids)
    assert member.terminate() == 0


def test_a_module_that_cannot_be_imported_stops_the_supervisor_at_once(patient: Fleet) -> None:
    member = patient.start("worker", "no_such_module", "--processes", "2")
    assert member.wait(20) == 1
    assert "the module 'no_such_module' cannot be imported" in member.said()
    assert not member.session()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "told"),
    [("import no_such_module\n", "code 1"), ("import os; os._exit(0)\n", "code 0")],
    ids=["import", "exit"],
)
def test_a_module_that_can_no_longer_be_imported_is_retried_with_growing_delays(
    patient: Fleet, broken: str, told: str
) -> None:
    """As in an incomplete deployment: the code on disk is broken for a while."""
    code = patient.folder / "deployed.py"
    code.write_text("from tests.support.jobs import common\n")
    member = patient.worker("--processes", "1", modules=("deployed",))
    code.write_text(broken)
    member.signal(signal.SIGKILL, member.started()[0])
    member.wait_said("worker process pid=", 5, 30)
    starts = [line.split(",")[0] for line in member.said().splitlines() if "worker process pid=" in line]
    pauses = [b - a for a, b in pairwise(datetime.fromisoformat(start) for start in starts)]
    assert pauses[2] >= timedelta(seconds=1)
    assert pauses[3] >= timedelta(seconds=2)
    assert f"died: its process exited with {told}" in member.said()
    code.write_text("from tests.support.jobs import common\n")
    member.wait_said(" started: queues=", 2, 30)
    patient.wait_done([jobs.quick.push().id])
    assert member.terminate(10) == 0


def test_a_gil_held_for_longer_than_the_lease_is_no_death(fleet: Fleet) -> None:
    member = fleet.worker("--processes", "1", modules=TROUBLE)
    fleet.worker()
    (task,) = fleet.wait_done([trouble.hold_gil.push(3).id], 60)
    begin, end = fleet.diary()
    assert end.at - begin.at > 2, "it was held for longer than the lease"
    assert task.result == b"1"
    assert len(member.boots()) == 1


def test_no_heartbeats_for_a_child_that_holds_the_gil_without_computing(fleet: Fleet) -> None:
    fleet.worker("--processes", "1", modules=TROUBLE)
    task_id = trouble.hold_gil_idle.push(60).id
    fleet.wait_diary("begin", 1)
    fleet.worker(modules=TROUBLE)
    (task,) = fleet.wait_done([task_id], 30)
    assert task.result == b"2"


def test_a_supervisor_sends_no_heartbeats_for_a_stopped_child(fleet: Fleet) -> None:
    member = fleet.worker("--processes", "1")
    task_id = jobs.hold.push("go").id
    (line,) = fleet.wait_diary("begin", 1)
    member.signal(signal.SIGSTOP, line.pid)
    fleet.worker()
    fleet.wait_diary("begin", 2, 10)
    fleet.open_gate("go")
    (task,) = fleet.wait_done([task_id])
    assert task.result == b"2"
    member.signal(signal.SIGCONT, line.pid)
    member.wait_said("was declared lost")
    assert len(member.started()) == 1, "it goes on, as another boot"


def test_a_killed_supervisor_makes_its_children_drain(patient: Fleet) -> None:
    member = patient.worker("--processes", "2")
    ids = [jobs.hold.push("go").id for _ in range(10)]
    patient.wait_diary("begin", 10)
    children = member.children()
    member.signal(signal.SIGKILL)
    member.process.wait(10)
    waits = jobs.quick.push()
    patient.open_gate("go")
    tasks = patient.wait_done(ids, 20)
    assert [task.result for task in tasks] == [b"1"] * 10
    wait_until(lambda: not member.session(), 20, f"the end of {children}")
    assert member.said().count(" stopped") == 2
    assert waits.info().record.state is State.QUEUED
    assert patient.stats().workers == ()
    waits.cancel()


def test_children_end_if_their_supervisor_is_killed_during_their_import(patient: Fleet) -> None:
    """The children have not yet asked the kernel to signal them when their parent dies."""
    member = patient.start("worker", "tests.support.jobs.slow_import", "--processes", "2", FLEET_IMPORT_S="2")
    member.wait_said("worker process pid=", 2)
    member.signal(signal.SIGKILL)
    member.process.wait(10)
    wait_until(lambda: not member.session(), 30, "the end of its children")
    assert patient.stats().workers == ()


def test_a_process_that_a_task_left_behind_does_not_hold_up_the_supervisor(patient: Fleet) -> None:
    """That process still holds the pipe to the supervisor open when the child is dead."""
    member = patient.worker("--processes", "1", modules=TROUBLE)
    task_id = trouble.fork_and_stay.push("go").id
    (line,) = patient.wait_diary("begin", 1)
    patient.open_gate("go")
    member.signal(signal.SIGKILL, line.pid)
    (task,) = patient.wait_done([task_id], 20)
    patient.open_gate("end")
    assert task.result == b"2"


def test_sigterm_at_any_moment_of_the_start_stops_the_worker(patient: Fleet) -> None:
    """Children that are just being started are told to stop, too."""
    for n in range(12):
        member = patient.start("worker", "tests.support.jobs.common", "--processes", "4")
        wait_until(lambda member=member, n=n: len(member.session()) > 1 + n // 3, what="some processes")
        assert member.terminate(20) == 0, member.said()
        assert not member.session()


def test_a_second_sigint_leaves_now(patient: Fleet) -> None:
    for _ in range(3):
        before = len(patient.diary("begin"))
        member = patient.worker("--processes", "2")
        ids = [jobs.hold.push("go").id for _ in range(10)]
        patient.wait_diary("begin", before + 10)
        member.signal(signal.SIGINT)
        member.wait_said("stopping worker process", 2)
        member.signal(signal.SIGINT)
        assert member.wait(10) == 3
        assert {patient.get(task_id).record.attempt for task_id in ids} == {0}, "no attempt is burnt"
        for task_id in ids:
            jobs.hold.sync_receipt(task_id).cancel()
