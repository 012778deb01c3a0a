"""Tasks whose workers died too often, or that somebody cancelled: everything that waits for them is notified."""

from __future__ import annotations

import itertools

import pytest

from relier.celery.options import REPORTED_BY_WORKER
from relier.ledger.defaults import MAX_RESURRECTIONS
from relier.states import State
from tests.celery.conftest import Shop
from tests.support.fleet import wait_until

MAX_SCARES = 2 + 2 * MAX_RESURRECTIONS
_boots = itertools.count()


@pytest.fixture(autouse=True)
def backend(shop: Shop) -> None:
    shop.env["SHOP_BACKEND"] = f"{shop.broker.tcp_url}/1"


def die(shop: Shop, times: int, together: int = 1) -> list[str]:
    """Let `times` workers, one after the other, claim the tasks and die. Return the final states of the tasks."""
    store, ledger = shop.fleet.store, shop.fleet.ledger
    for _ in range(times):
        boot = f"dies{next(_boots)}"
        store.run(ledger.register(boot, 60_000))
        claim = store.run(ledger.claim(boot, 1, ["celery"], together))
        assert len(claim.tasks) == together
        swept = store.run(ledger.revive(worker_id=boot, cause="killed"))
    return [state for _, state in swept.outcomes]


CHORD = """
from celery import chord
result = chord([price.s(1), price.s(2)])(add_up.s().on_error(complain.s()))
print(*[child.id for child in result.parent.results], result.id)
"""


@pytest.mark.parametrize(
    ("deaths", "together", "reason"),
    [(MAX_RESURRECTIONS + 1, 1, "max_resurrections_exceeded"), (MAX_SCARES + 1, 2, "workers_kept_dying")],
    ids=["alone", "with others"],
)
def test_a_chord_fails_when_the_workers_of_a_member_died_too_often(
    shop: Shop, deaths: int, together: int, reason: str
) -> None:
    *members, body = shop.run(CHORD).split()
    assert set(die(shop, deaths, together)) == {"queued"}
    shop.worker("-P", "solo")
    wait_until(lambda: f"complained of {body}" in shop.printed(), 30, "the error callback of the body")
    ended = shop.fleet.wait_ended(members)
    assert [task.record.reason for task in ended if task.record.state is State.DEAD] == [reason] * together
    assert f"added up {[1, 2]}" not in shop.printed()


def test_an_error_callback_is_called_for_a_task_whose_workers_died_too_often(shop: Shop) -> None:
    (task_id,) = shop.run("print(weigh.apply_async(('tea',), link_error=complain.s()).id)").split()
    die(shop, MAX_RESURRECTIONS + 1)
    shop.worker("-P", "solo")
    wait_until(lambda: shop.printed() == [f"complained of {task_id}"], 30, "the error callback")
    (dead,) = shop.fleet.wait_ended([task_id])
    assert (dead.record.state, dead.record.reason) == (State.DEAD, "max_resurrections_exceeded")


def test_a_task_still_runs_after_max_resurrections_deaths(shop: Shop) -> None:
    (task_id,) = shop.run("print(weigh.apply_async(('tea',), link_error=complain.s()).id)").split()
    die(shop, MAX_RESURRECTIONS)
    shop.worker("-P", "solo")
    wait_until(lambda: shop.printed() == ["weighed tea"], 30, "its run: it may die so often")
    shop.fleet.wait_done([task_id])


def test_a_task_whose_failure_nothing_awaits_keeps_the_default_limit(shop: Shop) -> None:
    (plain, linked) = shop.run("print(sell.delay(1).id, sell.apply_async((2,), link_error=complain.s()).id)").split()
    assert shop.fleet.get(plain).record.spec.max_resurrections is None
    assert shop.fleet.get(linked).record.spec.max_resurrections == REPORTED_BY_WORKER


def test_the_worker_whose_sweep_buries_a_task_updates_the_result_backend(shop: Shop) -> None:
    (task_id,) = shop.run("print(weigh.delay('tea').id)").split()
    die(shop, MAX_RESURRECTIONS)
    store, ledger = shop.fleet.store, shop.fleet.ledger
    store.run(ledger.register("expires", 1))
    assert len(store.run(ledger.claim("expires", 1, ["celery"], 1)).tasks) == 1
    worker = shop.worker("-P", "solo", "-E")
    (dead,) = shop.fleet.wait_ended([task_id], 60)
    assert (dead.record.state, dead.record.reason) == (State.DEAD, "max_resurrections_exceeded")
    worker.wait_said("is lost: WorkerLostError")
    told = shop.run(f"print(app.AsyncResult({task_id!r}).state, type(app.AsyncResult({task_id!r}).result).__name__)")
    assert told.split() == ["FAILURE", "WorkerLostError"]


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_a_chord_fails_when_a_waiting_member_is_cancelled(shop: Shop, compression: str | None) -> None:
    code = CHORD.replace("price.s(1)", f"price.s(1).set(compression={compression!r})")
    first, second, body = shop.run(code).split()
    assert shop.rl("tasks", "cancel", first)[0] == 0
    shop.worker("-P", "solo")
    wait_until(lambda: f"complained of {body}" in shop.printed(), 30, "the error callback of the body")
    assert [task.record.state for task in shop.fleet.wait_ended([first, second])] == [State.CANCELLED, State.DONE]


def test_a_chord_fails_when_a_member_is_cancelled_before_its_worker_starts_it(shop: Shop) -> None:
    first, second, body = shop.run(CHORD.replace("price", "appraise")).split()
    shop.worker("-c", "1")
    shop.fleet.wait_done([first])
    wait_until(lambda: shop.fleet.get(second).record.state is State.RUNNING, 20, "the wait for its rate limit")
    assert shop.rl("tasks", "cancel", second)[0] == 0
    wait_until(lambda: f"complained of {body}" in shop.printed(), 30, "the error callback of the body")
    (ended,) = shop.fleet.wait_ended([second])
    assert (ended.record.state, ended.record.reason) == (State.DEAD, "TaskRevokedError")
    assert shop.printed()[0] == "appraised 1"
