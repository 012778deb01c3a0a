"""Workers that die, freeze or lose their store, and the tasks that they ran."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import pytest

from relier import MaxResurrectionsExceededError, TaskDeadError, TaskState, use_client
from tests.support.conformance import tasks
from tests.support.conformance.engine import Engine
from tests.support.conformance.stage import PATIENCE_S, Stage
from tests.support.servers import Boot, Server, wait_until

SHORT = 1.0  # the lease of a worker that is to be lost


@pytest.mark.core
def test_the_tasks_of_a_killed_worker_run_again_on_another(stage: Stage) -> None:
    stage.needs(at_once=3)
    victim = stage.start_worker(heartbeat_ttl=SHORT)
    kinds = [tasks.WAITS[kind] for kind in ("async", "def", "isolated async")]
    receipts = [task.push(stage.place) for task in kinds]
    stage.wait_for_notes("runs", 3)
    (dead_boot,) = stage.boots()
    stage.start_worker()
    victim.kill()
    runs = stage.wait_for_notes("runs", 6)
    stage.go()
    assert [receipt.result(PATIENCE_S) for receipt in receipts] == ["attempt 2"] * 3
    assert {run.split()[1] for run in runs[:3]} == {dead_boot}
    assert dead_boot not in {run.split()[1] for run in runs[3:]}
    for receipt in receipts:
        (entry,) = stage.task(receipt).history
        assert (entry.move, entry.worker_id, entry.attempt) == ("revive", dead_boot, 1)
        assert 0 < entry.since_ms < entry.at_ms
    assert stage.boots().isdisjoint({dead_boot})


def test_a_task_that_may_not_be_retried_when_lost_is_a_dead_letter(stage: Stage) -> None:
    """With on_lost="bury" the task ends; with on_lost="hold" it waits until a person replays it."""
    stage.needs(at_once=2)
    victim = stage.start_worker(heartbeat_ttl=SHORT)
    buried, held = tasks.wait_or_be_buried.push(stage.place), tasks.wait_or_be_held.push(stage.place)
    stage.wait_for_notes("runs", 2)
    victim.kill()
    stage.sweep_until(lambda: {buried.state(), held.state()} == {TaskState.DEAD}, "both are dead")
    assert {stage.record(one).reason for one in (buried, held)} == {"lost"}
    with pytest.raises(TaskDeadError, match="lost"):
        held.result()
    ends = [float(stage.command("ZSCORE", stage.key("ended", "dead"), one.id)) for one in (buried, held)]
    assert ends[0] < math.inf
    assert ends[1] == math.inf
    assert stage.command("PTTL", stage.key("task", held.id)) == -1
    stage.go()
    held.replay()
    stage.start_worker()
    assert held.result(PATIENCE_S) == "attempt 1"


def test_a_task_alone_in_a_process_that_dies_is_dead_after_max_resurrections(stage: Stage) -> None:
    victim = stage.start_worker(heartbeat_ttl=SHORT)
    receipt = tasks.wait_in_one_life.push(stage.place)
    stage.wait_for_notes("runs")
    victim.kill()
    stage.sweep_until(lambda: receipt.state() is TaskState.DEAD, "it is dead")
    assert stage.record(receipt).reason == "max_resurrections_exceeded"
    with pytest.raises(MaxResurrectionsExceededError):
        receipt.result()


def test_the_death_of_a_process_with_several_tasks_counts_against_none(stage: Stage) -> None:
    stage.needs(at_once=3)
    victim = stage.start_worker(heartbeat_ttl=SHORT)
    receipts = tasks.wait_in_one_life.push_many([(stage.place,)] * 3)
    stage.wait_for_notes("runs", 3)
    victim.kill()
    stage.go()
    stage.start_worker()
    assert [receipt.result(PATIENCE_S) for receipt in receipts] == ["attempt 2"] * 3


def test_a_cancel_ends_the_task_of_a_worker_that_died_before_receiving_it(stage: Stage) -> None:
    victim = stage.start_worker(heartbeat_ttl=SHORT)
    receipt = tasks.wait.push(stage.place)
    stage.wait_for_notes("runs")
    victim.freeze()
    receipt.cancel()
    victim.kill()
    stage.sweep_until(lambda: receipt.state() is TaskState.CANCELLED, "it is cancelled")


@pytest.mark.parametrize("kind", tasks.ZOMBIES)
def test_a_frozen_workers_late_commit_is_refused_and_its_context_is_lost(stage: Stage, kind: str) -> None:
    frozen = stage.start_worker(heartbeat_ttl=SHORT)
    receipt = tasks.ZOMBIES[kind].push(stage.place)
    stage.wait_for_notes("runs")
    stage.start_worker()
    frozen.freeze()
    assert receipt.result(PATIENCE_S) == "attempt 2"
    frozen.thaw()
    assert stage.wait_for_notes("ends", 2)[1] == "1 lost=True"
    wait_until(lambda: frozen.says("zombie commit rejected"), PATIENCE_S, "the zombie is told")
    assert frozen.says(receipt.id)
    assert stage.count("refused") >= 1
    assert receipt.result() == "attempt 2"
    assert stage.count("done") == 1


@pytest.mark.core
def test_a_worker_declared_lost_continues_under_a_new_worker_id(stage: Stage) -> None:
    stage.needs(at_once=2)
    worker = stage.start_worker(heartbeat_ttl=SHORT)
    (old,) = stage.boots()
    receipts = [tasks.wait.push(stage.place), tasks.wait_alone.push(stage.place)]
    stage.wait_for_notes("runs", 2)
    worker.freeze()
    stage.sweep_until(lambda: {one.state() for one in receipts} == {TaskState.QUEUED}, "its tasks are returned")
    worker.thaw()
    runs = stage.wait_for_notes("runs", 4)
    assert len(stage.wait_for_notes("stopped", 2)) == 2  # the lost attempts are cancelled, not just refused
    stage.go()
    assert [one.result(PATIENCE_S) for one in receipts] == ["attempt 2"] * 2
    assert old not in stage.boots()
    assert {run.split()[1] for run in runs[2:]} == stage.boots()
    worker.stop()
    assert worker.exit_code() == stage.engine.clean


@pytest.fixture
def own_store(engine: Engine, stage: Stage, boot: Boot) -> Iterator[tuple[Stage, Server]]:
    """A stage on its own server, which the test may kill and freeze."""
    server = boot()
    own = Stage(engine, stage.settings.replace(redis_url=server.url), stage.folder)
    use_client(own.client)
    yield own, server
    stage.workers += own.workers  # for the report, and the end
    own.client.close()


@pytest.mark.core
def test_all_tasks_end_although_the_store_is_killed_meanwhile(own_store: tuple[Stage, Server]) -> None:
    stage, server = own_store
    stage.needs(at_once=len(tasks.WAITS) + 1)
    stage.start_worker(concurrency=20)
    waiting = [task.push(stage.place) for task in tasks.WAITS.values()]
    receipts = tasks.count.push_many([(stage.place, number) for number in range(400)])
    stage.wait_for_notes("runs", len(waiting))
    stage.wait_for_notes("counted", 20)
    server.restart()
    assert [receipt.result(PATIENCE_S) for receipt in receipts] == [*range(400)]
    after = tasks.add.push_many([(number,) for number in range(50)])
    stage.go()
    assert [receipt.result(PATIENCE_S) for receipt in after] == [*range(50)]
    assert {receipt.result(PATIENCE_S) for receipt in waiting} == {"attempt 1"}
    counts = stage.stats().counts
    assert counts["submitted"] == counts["done"] == 454
    assert counts.get("dead", 0) == counts.get("revived", 0) == 0


def test_a_store_that_does_not_answer_makes_a_worker_suspect_and_not_lost(own_store: tuple[Stage, Server]) -> None:
    """ctx.guard() warns the task. The task continues, and commits when the store is back."""
    stage, server = own_store
    stage.needs(at_once=2)
    stage.start_worker(heartbeat_ttl=SHORT)
    receipts = [tasks.guarded.push(stage.place), tasks.guarded_alone.push(stage.place)]
    stage.wait_for_notes("runs", 2)
    server.freeze()
    assert stage.wait_for_notes("suspect", 2) == ["False", "False"]
    server.thaw()
    assert [receipt.result(PATIENCE_S) for receipt in receipts] == ["attempt 1", "attempt 1"]
    assert tasks.aadd.push(1).result(PATIENCE_S) == 1
    assert stage.count("revived") == 0


@pytest.mark.slow
@pytest.mark.core
def test_a_store_that_flaps_makes_no_worker_lost(own_store: tuple[Stage, Server]) -> None:
    """The store goes down and up again, for a quarter of a lease each time, while another worker sweeps."""
    stage, server = own_store
    stage.needs(at_once=len(tasks.WAITS))
    stage.start_worker()
    receipts = [task.push(stage.place) for task in tasks.WAITS.values()]
    stage.wait_for_notes("runs", len(receipts))
    stage.start_worker(queues=("other",))
    boots = stage.boots()
    for _ in range(6):
        server.kill()
        wait_until(passed(stage.settings.heartbeat_ttl / 4))
        server.start()
        wait_until(passed(stage.settings.heartbeat_ttl / 4))
    stage.go()
    assert {receipt.result(PATIENCE_S) for receipt in receipts} == {"attempt 1"}
    assert stage.boots() == boots
    assert stage.count("revived") == 0


@pytest.mark.slow
@pytest.mark.core
def test_a_shutdown_ends_ten_seconds_after_the_grace_even_if_the_store_is_frozen(
    own_store: tuple[Stage, Server], server: Server
) -> None:
    """The broker, if there is one, is on another server: its effects on Celery are not tested here."""
    stage, frozen = own_store
    broker = {"CONFORMANCE_BROKER": f"redis://127.0.0.1:{server.port}/15"}
    worker = stage.start_worker(env=broker, graceful_shutdown_timeout=1)
    receipt = tasks.wait.push(stage.place)
    stage.wait_for_notes("runs")
    frozen.freeze()
    told = time.monotonic()
    worker.stop()
    code = worker.exit_code(40)
    took = time.monotonic() - told
    frozen.thaw()
    assert took < 11, f"{took:.1f} s"
    assert code == stage.engine.forced
    stage.go()
    stage.start_worker()
    assert receipt.result(PATIENCE_S)


def passed(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until
