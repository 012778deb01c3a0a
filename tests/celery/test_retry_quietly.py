"""`self.retry(throw=False)`: the run continues to its end, and its callbacks are sent although it is not the last
run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import celery
import pytest
from msgspec.structs import replace

from relier import use_client
from relier.celery import install
from relier.celery.adoption import adoption_of
from relier.celery.messages import internal_message
from relier.celery.pool.adopted_child import report_of
from relier.celery.sending.collect import Collector
from relier.ledger.records import new_task_id
from tests.celery.conftest import Shop
from tests.support.fleet import wait_until


def test_callbacks_run_after_each_run(shop: Shop) -> None:
    shop.worker("-P", "solo")
    shop.run("ask_twice.apply_async(link=sell.s())")
    wait_until(lambda: len(shop.printed()) == 4, 20, "two runs and two callbacks")
    assert sorted(shop.printed()) == ["asked 0", "asked 1", "sold 0", "sold 1"]


@pytest.fixture
def app(shop: Shop) -> Iterator[Any]:
    made = celery.Celery("shop", broker="memory://", set_as_current=False)
    install(made, adopt=True, settings=shop.fleet.settings)
    use_client(shop.fleet.client)
    yield made
    made.close()


@pytest.mark.parametrize("size", [10, 700_000])
def test_tasks_sent_before_a_process_died_are_not_sent_again(shop: Shop, app: Any, size: int) -> None:
    """The process died before its worker knew about the retry, so the task runs again. A callback has a new id in each
    run, but the id of its batch stays the same. A callback that is too large for a batch is sent again."""
    adoption = adoption_of(app)
    again = internal_message("tests.support.celery_shop_app.ask_twice", "asked", (), None, None)
    again.headers["retries"] = 1
    for _ in range(2):
        collector = Collector("asked", "celery", settling=True)
        collector.again = again, adoption.submission(again, "celery", None)
        callback = internal_message("tests.support.celery_shop_app.sell", new_task_id(), ("x" * size,), None, None)
        collector.follow_ups.append(replace(adoption.submission(callback, "celery", None), priority=1))
        report_of(app, collector, 0, None, store_result=False)
    assert shop.fleet.stats().counts["submitted"] == (1 if size == 10 else 2)
