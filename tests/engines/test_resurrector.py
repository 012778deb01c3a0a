"""`rl resurrector` sweeps without a worker. Brakes limit a sweep, which is logged."""

from __future__ import annotations

import pytest

from relier.states import State
from tests.support.fleet import Fleet, wait_until
from tests.support.jobs import common as jobs


@pytest.mark.parametrize("command", ["resurrector", "run-resurrector"])
def test_the_resurrector_revives_tasks_without_any_worker(fleet: Fleet, command: str) -> None:
    worker = fleet.worker("--no-sweep")
    ids = [jobs.hold.push("go").id for _ in range(20)]
    late = jobs.quick.with_options(delay=0.5).push()
    fleet.wait_diary("begin", 20)
    worker.kill_all()
    sweeper = fleet.start(command)
    wait_until(lambda: fleet.stats().counts.get("revived") == 20, 15, "all revived")
    wait_until(lambda: late.info().record.state is State.QUEUED, 5, "the late one due")
    assert fleet.stats().workers == (), "the sweeper itself is no worker"
    assert sweeper.terminate(10) == 0
    fleet.open_gate("go")
    fleet.worker("--no-sweep")
    fleet.wait_done([*ids, late.id])


def test_the_resurrector_cancels_expired_tasks_in_unserved_queues(fleet: Fleet) -> None:
    late = jobs.quick.with_options(queue="unserved", expires=0.5).push()
    fleet.start("resurrector")
    wait_until(lambda: late.info().record.state is State.CANCELLED, 15, "its end")
    assert late.info().record.reason == "expired"


def test_a_limited_sweep_is_logged_and_revives_every_task_in_the_end(fleet: Fleet) -> None:
    """At most three revived tasks wait in a queue at a time. This is logged once per backlog, not in every sweep."""
    worker = fleet.worker("--no-sweep")
    ids = [jobs.hold.push("go").id for _ in range(20)]
    fleet.wait_diary("begin", 20)
    worker.kill_all()
    sweeper = fleet.start("resurrector", RELIER_RESURRECTION_MAX_QUEUE_DEPTH="3")
    told = sweeper.wait_said("Resurrection scan deferred: recovery queue backlog too deep")
    assert "RELIER_RESURRECTION_MAX_QUEUE_DEPTH=3" in told
    wait_until(lambda: fleet.stats().counts.get("revived") == 3, what="three revived")
    fleet.let_pass(1.5)
    assert fleet.stats().counts["revived"] == 3
    assert sum(fleet.get(task_id).record.state is State.RUNNING for task_id in ids) == 17, "held, not stranded"
    assert sweeper.said().count("Resurrection scan deferred") == 1
    fleet.open_gate("go")
    fleet.worker("--no-sweep")
    fleet.wait_done(ids)
