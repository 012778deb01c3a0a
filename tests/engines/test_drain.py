"""SIGTERM at any moment: stop claiming, let tasks finish, and hand back the rest without using up an attempt."""

from __future__ import annotations

import random
import signal
import time

import pytest

from relier.states import State
from tests.engines.conftest import NewFleet
from tests.support.fleet import Fleet, wait_until
from tests.support.jobs import common as jobs
from tests.support.jobs import trouble
from tests.support.servers import Boot

TROUBLE = ("tests.support.jobs.common", "tests.support.jobs.trouble")


@pytest.mark.slow
def test_sigterm_at_20_random_moments_loses_no_task(patient: Fleet) -> None:
    """This happens under load, with a lease of a minute: a task that is not handed back at once would be missing at the
    end. A task that was handed back runs again with the same attempt number."""
    ids: list[str] = []
    dice = random.Random(3)
    for _ in range(20):
        ids += [jobs.nap.push(dice.uniform(0, 0.1)).id for _ in range(30)]
        ids += [jobs.nap_thread.push(dice.uniform(0, 0.1)).id for _ in range(10)]
        seen, more = len(patient.diary("begin")), dice.randrange(35)
        member = patient.worker("--concurrency", "20", RELIER_GRACEFUL_SHUTDOWN_TIMEOUT="0.02")
        wait_until(lambda seen=seen, more=more: len(patient.diary("begin")) >= seen + more, what="some tasks begun")
        assert member.terminate(20) in (0, 3)
        assert patient.stats().workers == ()
    patient.worker()
    tasks = patient.wait_done(ids, 60)
    assert {task.result for task in tasks} == {b"1"}, "no attempt is burnt by a release"
    assert not any(task.history for task in tasks)
    assert patient.stats().counts["released"] > 0, "some were handed back"


def test_tasks_that_finish_in_time_are_waited_for(patient: Fleet) -> None:
    member = patient.worker()
    ids = [jobs.hold.push("go").id for _ in range(5)] + [jobs.hold_thread.push("go").id for _ in range(5)]
    patient.wait_diary("begin", 10)
    member.signal(signal.SIGTERM)
    member.wait_said(" stops claiming and waits up to 30 s for 10 running tasks; Ctrl-C again hands them back")
    waits = jobs.quick.push()
    member.signal(signal.SIGTERM)  # a second one makes no difference
    patient.open_gate("go")
    assert member.wait() == 0
    assert [task.result for task in patient.wait_done(ids, 1)] == [b"1"] * 10
    assert waits.info().record.state is State.QUEUED
    waits.cancel()


def test_tasks_that_do_not_finish_in_time_are_handed_back(patient: Fleet) -> None:
    member = patient.worker(RELIER_GRACEFUL_SHUTDOWN_TIMEOUT="0.1")
    kinds = (jobs.hold, jobs.hold_thread, jobs.hold_isolated)
    ids = [kind.push("go").id for kind in kinds for _ in range(2)]
    patient.wait_diary("begin", 6)
    assert member.terminate(20) == 3
    assert [patient.get(task_id).record.state for task_id in ids] == [State.QUEUED] * 6
    assert [patient.get(task_id).record.attempt for task_id in ids] == [0] * 6
    patient.open_gate("go")
    patient.worker()
    assert [task.result for task in patient.wait_done(ids)] == [b"1"] * 6


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "gone"])
def test_a_worker_stops_in_time_while_the_store_does_not_answer(boot: Boot, fleets: NewFleet, frozen: bool) -> None:
    """The worker cannot report anything, but still ends within the grace period and a few seconds."""
    server = boot()
    fleet = fleets(2, on=server)
    member = fleet.worker(RELIER_GRACEFUL_SHUTDOWN_TIMEOUT="1")
    task_id = jobs.hold.push("go").id
    fleet.wait_diary("begin", 1)
    server.freeze() if frozen else server.kill()
    member.wait_said("store unreachable for nearly a lease")
    assert member.terminate(20) == 3
    server.thaw() if frozen else server.start()
    fleet.open_gate("go")
    fleet.worker()
    fleet.wait_done([task_id])
    assert len(member.said().splitlines()) < 60, "it does not flood the log"


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_a_shutdown_ends_ten_seconds_after_the_grace_whatever_the_store_does(
    boot: Boot, fleets: NewFleet, arguments: tuple[str, ...]
) -> None:
    """A claim, an unconfirmed result, a lock and a task that does not finish all meet a frozen store."""
    server = boot()
    fleet = fleets(5, on=server)
    member = fleet.worker(*arguments, modules=TROUBLE, RELIER_GRACEFUL_SHUTDOWN_TIMEOUT="4")
    ends, stays = jobs.hold.push("go").id, trouble.locked.push("never").id
    fleet.wait_diary("begin", 2)
    server.freeze()
    fleet.open_gate("go")
    fleet.wait_diary("end", 1)
    told = time.monotonic()
    code = member.terminate(40)
    took = time.monotonic() - told
    assert 4 <= took < 14, f"{took:.1f} s:\n{member.said()}"
    assert code == 3
    server.thaw()
    fleet.open_gate("never")
    fleet.worker(modules=TROUBLE)
    fleet.wait_done([ends, stays])


def test_an_idle_worker_stops_in_time_while_the_store_is_frozen(boot: Boot, fleets: NewFleet) -> None:
    server = boot()
    fleet = fleets(5, on=server)
    member = fleet.worker()
    server.freeze()
    told = time.monotonic()
    assert member.terminate(40) == 0
    assert time.monotonic() - told < 10, member.said()[-3000:]
    server.thaw()


def test_a_lost_attempt_is_interrupted_once_and_may_clean_up(fleet: Fleet) -> None:
    """A cancelled task is interrupted once, not at every heartbeat, so that it can finish its cleanup."""
    fleet.worker(modules=TROUBLE)
    receipt = trouble.clean_up.push()
    fleet.wait_diary("begin", 1)
    assert receipt.cancel()
    fleet.wait_diary("clean", 1)
    (task,) = fleet.wait_ended([receipt.id])
    assert task.record.state is State.CANCELLED


@pytest.mark.slow
def test_a_task_that_is_buried_meanwhile_is_not_waited_for(patient: Fleet) -> None:
    """The task ignores its hard timeout of 0.5 s. Ten seconds later it is buried, and there is nothing left to wait
    for."""
    member = patient.worker(modules=TROUBLE)
    task_id = trouble.swallow.push().id
    patient.wait_diary("begin", 1)
    member.signal(signal.SIGTERM)
    assert member.wait(18) == 0, "well before the 30 s it would wait for a task"
    (task,) = patient.wait_ended([task_id])
    assert task.record.reason == "TimeoutError"


def test_an_attempt_handed_back_while_it_runs_is_notified(patient: Fleet) -> None:
    """Its thread is in a call that cannot be interrupted. The task runs elsewhere by then, so guard() must raise."""
    member = patient.worker(modules=TROUBLE, RELIER_GRACEFUL_SHUTDOWN_TIMEOUT="0.1")
    task_id = trouble.deaf.push().id
    patient.wait_diary("begin", 1)
    assert member.terminate(20) == 3
    assert patient.get(task_id).record.state is State.QUEUED
    assert [line.what for line in patient.diary()][1:] in ([], ["told"]), "it never believed that it was still its own"


@pytest.mark.parametrize("arguments", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_a_blocked_loop_does_not_hold_up_the_exit(patient: Fleet, arguments: tuple[str, ...]) -> None:
    """The loop cannot handle the signal. The task that blocks it and the other task are still handed back."""
    member = patient.worker(*arguments, RELIER_GRACEFUL_SHUTDOWN_TIMEOUT="1")
    ids = [jobs.hold.push("go").id, jobs.block.push("go").id]
    patient.wait_diary("begin", 2)
    assert member.terminate(25) == 3
    assert "2 tasks are handed back without it" in member.said()
    assert [patient.get(task_id).record.state for task_id in ids] == [State.QUEUED] * 2
    assert [patient.get(task_id).record.attempt for task_id in ids] == [0] * 2
    assert not member.session()
    patient.open_gate("go")
    patient.worker()
    assert [task.result for task in patient.wait_done(ids)] == [b"1"] * 2


def test_a_second_sigint_reaches_a_blocked_loop(patient: Fleet) -> None:
    member = patient.worker(RELIER_GRACEFUL_SHUTDOWN_TIMEOUT="60")
    task_id = jobs.block.push("go").id
    patient.wait_diary("begin", 1)
    member.signal(signal.SIGINT)
    patient.let_pass(0.5)  # otherwise two signals may count as one
    member.signal(signal.SIGINT)
    assert member.wait(25) == 3
    assert patient.get(task_id).record.state is State.QUEUED


@pytest.mark.slow
def test_a_child_that_ignores_signals_is_killed_and_its_tasks_are_returned(patient: Fleet) -> None:
    """A task holds the child's GIL, so not even its heartbeat thread notices that it must end."""
    member = patient.worker("--processes", "1", modules=TROUBLE, RELIER_GRACEFUL_SHUTDOWN_TIMEOUT="0.1")
    task_id = trouble.hold_gil_idle.push(120).id
    patient.wait_diary("begin", 1)
    assert member.terminate(45) == 3
    assert "did not leave in time and is killed" in member.said()
    task = patient.get(task_id)
    assert task.record.state is State.QUEUED
    assert "did not leave" in task.history[-1].detail
    patient.worker(modules=TROUBLE)
    patient.wait_done([task_id])
