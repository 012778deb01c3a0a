"""A task that kills its process becomes a dead letter, and the tasks that run beside it survive."""

from __future__ import annotations

import signal

import pytest

from relier import MaxResurrectionsExceededError
from relier.states import State
from tests.support.fleet import Fleet
from tests.support.jobs import common as jobs
from tests.support.jobs import slow_import as slow
from tests.support.jobs import trouble

TROUBLE = ("tests.support.jobs.common", "tests.support.jobs.trouble")
INNOCENTS = 50


@pytest.mark.slow
def test_fifty_healthy_tasks_survive_beside_a_poison_task(patient: Fleet) -> None:
    member = patient.worker("--processes", "1", modules=TROUBLE)
    ids = [trouble.innocent.push().id for _ in range(INNOCENTS)]
    culprit = trouble.poison.push().id
    patient.wait_diary("begin", INNOCENTS)
    patient.wait_diary("poison", 1)
    patient.open_gate("poison")
    member.wait_said("tasks of worker", 2)
    patient.open_gate("go")
    tasks = patient.wait_done(ids, 60)
    (dead,) = patient.wait_ended([culprit], 60)
    assert (dead.record.state, dead.record.reason) == (State.DEAD, "max_resurrections_exceeded")
    assert patient.stats().counts["done"] == INNOCENTS
    shared = {sum(entry.move == "revive" for entry in task.history) for task in tasks}
    assert shared == {2}, "twice their process died around them, and then no more"
    deaths = [entry for entry in dead.history if "SIGKILL" in entry.detail]
    assert len(deaths) == 2 + 6, "twice in company, which convicts nobody; then alone: the first, and five more"


@pytest.mark.slow
def test_healthy_suspects_keep_their_full_time_limit(patient: Fleet) -> None:
    """Suspects wait for one of a few isolated processes, and that wait does not count. Each has a hard timeout of 6 s
    and takes 0.5 s, but all of them one after the other take far longer."""
    patient.worker("--processes", "1", "--isolated", "1", modules=TROUBLE)
    culprit = trouble.poison.push().id
    ids: list[str] = []
    for deaths in range(2):
        patient.wait_diary("poison", deaths + 1)
        if not ids:
            ids = [trouble.innocent.push().id for _ in range(4)]
            ids += [trouble.punctual_after.push().id for _ in range(20)]
        patient.wait_diary("begin", 24 * (deaths + 1))
        (line,) = patient.diary("poison")[deaths : deaths + 1]
        patient.members[0].signal(signal.SIGKILL, line.pid)
    patient.open_gate("poison")
    patient.open_gate("go")
    patient.wait_done(ids, 60)
    (dead,) = patient.wait_ended([culprit], 60)
    assert dead.record.reason == "max_resurrections_exceeded"


def test_the_death_of_its_worker_does_not_count_against_a_waiting_suspect(patient: Fleet) -> None:
    """Both became suspects when their worker was killed twice. Since then one runs in isolation and the other waits for
    the process, and each time the worker is killed. Both may survive one death that counts."""
    member = patient.worker("--processes", "1", "--isolated", "1", modules=TROUBLE)
    runs, waits = (trouble.frail.push().id for _ in range(2))
    for kills, (begun, suspects) in enumerate([(2, 0), (4, 0), (5, 2), (6, 4)]):
        patient.wait_diary("begin", begun)
        member.wait_said("is a suspect and runs alone", suspects)
        member.signal(signal.SIGKILL, member.started()[-1])
        member.wait_said(" started: queues=", kills + 2)
    patient.open_gate("go")
    tasks = patient.wait_done([runs, waits], 60)
    assert [(task.record.more["deaths"], task.record.more["scares"]) for task in tasks] == [("0", "4")] * 2
    alone = patient.diary("begin")[4:]
    assert [line.task_id for line in alone] == [runs] * 3 + [waits], "one ran, the other waited"


def test_a_task_that_always_kills_its_worker_becomes_a_dead_letter(patient: Fleet) -> None:
    """The task is isolated, but never the only one in its worker, so no death counts against it. After three of them it
    is dead all the same. The task that was beside it each time is a suspect by then, but lives."""
    patient.worker("--processes", "1", modules=TROUBLE)
    beside = trouble.innocent.push().id
    patient.wait_diary("begin", 1)
    receipt = trouble.hog.push()
    (dead,) = patient.wait_ended([receipt.id], 60)
    assert (dead.record.state, dead.record.reason) == (State.DEAD, "workers_kept_dying")
    assert len(patient.diary("hog")) == 3
    assert dead.payload is not None, "it can be replayed"
    with pytest.raises(MaxResurrectionsExceededError, match="SIGKILL"):
        receipt.result()
    patient.open_gate("go")
    (task,) = patient.wait_done([beside])
    assert (task.record.more["deaths"], task.record.more["scares"]) == ("0", "3")


@pytest.mark.slow
def test_isolated_tasks_that_wait_for_a_process_keep_their_time(patient: Fleet) -> None:
    """Twelve tasks of 1 s each run one after the other, each with a hard timeout of 8 s."""
    patient.worker("--isolated", "1", modules=TROUBLE)
    ids = [trouble.punctual_isolated.push().id for _ in range(12)]
    patient.wait_done(ids, 60)


def test_the_start_of_an_isolated_process_does_not_count_for_its_task(patient: Fleet) -> None:
    """The import of the module takes 3 s there. The task's timeout is 2 s, and it takes no time itself."""
    patient.worker(modules=("tests.support.jobs.slow_import",))
    patient.wait_done([slow.brief.push().id], 60)


@pytest.mark.slow
def test_isolated_tasks_are_shared_among_workers(patient: Fleet) -> None:
    """A task that finds no free process goes to another worker, and does not delay tasks that need none."""
    patient.worker("--isolated", "2", "--concurrency", "16")
    ids = [jobs.hold_isolated.push("go").id for _ in range(32)]
    patient.wait_diary("begin", 2)
    patient.worker("--isolated", "2", "--concurrency", "16")
    patient.wait_diary("begin", 4, 15)
    assert jobs.echo.push("plain").result(15) == "plain"
    patient.open_gate("go")
    patient.wait_done(ids, 60)
