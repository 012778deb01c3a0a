"""Lifespan, middleware and dependencies, in every process that runs tasks."""

from __future__ import annotations

import pytest

from tests.support.conformance import furnished
from tests.support.conformance.stage import PATIENCE_S, Stage
from tests.support.servers import wait_until

MODULE = "tests.support.conformance.furnished"


@pytest.mark.core
def test_tasks_get_the_state_of_their_process_and_their_dependencies(stage: Stage) -> None:
    worker = stage.start_worker(MODULE, env={"CONFORMANCE_PLACE": stage.place})
    receipts = [task.push(7) for task in furnished.EVERYWHERE.values()]
    pools = set()
    for receipt in receipts:
        n, session, pool, client, wrapped = receipt.result(PATIENCE_S)
        assert (n, session, client, wrapped) == (7, f"session of {pool} for acme", "client", "wrapped")
        pools.add(pool)
    assert sorted(stage.notes("closed")) == sorted(receipt.id for receipt in receipts)
    assert {f"pool of {pid}" for pid in stage.notes("entered")} >= pools
    worker.stop()
    assert worker.exit_code() == stage.engine.clean
    assert sorted(stage.notes("left")) == sorted(stage.notes("entered"))


def test_a_worker_whose_lifespan_fails_runs_no_task(stage: Stage) -> None:
    if stage.engine.name != "native":
        pytest.skip("Celery's worker has other things to do")
    worker = stage.start_worker(MODULE, ready=False, lifespan=f"{MODULE}:failing")
    wait_until(lambda: not worker.running, PATIENCE_S, "the worker ends")
    said = worker.log.read_text()
    assert "the lifespan tests.support.conformance.furnished.failing failed before its yield (OSError: the data" in said
    assert "Traceback" not in said


def test_a_wrong_lifespan_is_named(stage: Stage) -> None:
    if stage.engine.name != "native":
        pytest.skip("the command of a native worker")
    for wrong, message in (
        (f"{MODULE}:nothing", "it cannot be imported (AttributeError"),
        (f"{MODULE}:client", "takes an async function with one yield"),
        (f"{MODULE}:session", "takes a function without parameters, but"),
    ):
        worker = stage.start_worker(MODULE, ready=False, lifespan=wrong)
        wait_until(lambda ended=worker: not ended.running, PATIENCE_S, "the worker ends")
        assert message in worker.log.read_text()
