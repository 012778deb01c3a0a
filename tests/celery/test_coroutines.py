"""Adopted tasks that are `async def`."""

from __future__ import annotations

import pytest

from relier.states import State
from tests.celery.conftest import Shop
from tests.support.fleet import wait_until

POOLS = [
    pytest.param(("-c", "2"), marks=pytest.mark.engines, id="prefork"),
    pytest.param(("-P", "threads", "-c", "10"), marks=pytest.mark.engines, id="threads"),
    pytest.param(("-P", "asyncio", "-c", "50"), id="asyncio"),
]


@pytest.mark.parametrize("pool", POOLS)
def test_a_coroutine_runs_with_its_own_request(shop: Shop, pool: tuple[str, ...]) -> None:
    shop.worker(*pool)
    ids = shop.run("for i in range(20): print(order.delay(i).id)").split()
    shop.fleet.wait_done(ids)
    assert sorted(shop.printed()) == sorted(f"ordered {i} as {task_id}" for i, task_id in enumerate(ids))


def test_autoretry_waits_for_what_the_coroutine_raises(shop: Shop) -> None:
    shop.worker("-P", "asyncio", "-c", "10")
    (task_id,) = shop.run("print(order_in_vain.delay().id)").split()
    (task,) = shop.fleet.wait_ended([task_id])
    assert task.record.state is State.DEAD
    assert task.record.reason == "ValueError"
    wait_until(lambda: shop.printed() == ["try 0", "try 1", "try 2"], 5, "three tries")


@pytest.mark.parametrize("pool", POOLS)
def test_tasks_sent_by_a_coroutine_have_it_as_parent(shop: Shop, pool: tuple[str, ...]) -> None:
    """This includes coroutines that it starts itself. `current_task` is the task that runs."""
    shop.worker(*pool)
    ids = shop.run("for i in range(20): print(order_packed.delay().id)").split()
    wait_until(lambda: len(shop.printed()) == 2 * len(ids), 30, "all boxes")
    expected = [
        f"packed for {one} of {one} by tests.support.celery_shop_app.order_packed {box}" for one in ids for box in "ab"
    ]
    assert sorted(shop.printed()) == sorted(expected)
