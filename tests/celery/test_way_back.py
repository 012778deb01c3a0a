"""`rl celery drain`: tasks that wait in the ledger become plain messages, which a plain worker runs."""

from __future__ import annotations

import pytest

from relier import ConfigurationError
from relier.celery import install
from relier.states import State
from tests.celery.conftest import Shop
from tests.support.fleet import wait_until


def test_waiting_tasks_return_to_the_broker_and_a_plain_worker_runs_them(shop: Shop) -> None:
    shop.run("sell.delay('tea'); sell.apply_async(('jam',), countdown=0.5)")
    code, told = shop.rl("celery", "drain", "-A", "tests.support.celery_shop_app", "--dry-run")
    assert (code, told.strip()) == (0, "2 tasks would be sent to the broker.")
    assert shop.fleet.stats().by_state()[State.QUEUED] == 1
    code, told = shop.rl("celery", "drain", "-A", "tests.support.celery_shop_app")
    assert (code, told.strip()) == (0, "2 tasks sent to the broker.")
    assert shop.fleet.stats().by_state()[State.CANCELLED] == 2
    shop.env["SHOP_PLAIN"] = "1"
    shop.worker("-P", "solo")
    wait_until(lambda: sorted(shop.printed()) == ["sold jam", "sold tea"], 20, "both sales")


def test_a_worker_that_starts_after_a_drain_says_that_its_queue_is_paused(shop: Shop) -> None:
    shop.run("sell.delay('tea')")
    assert shop.rl("celery", "drain", "-A", "tests.support.celery_shop_app")[0] == 0
    said = shop.worker("-P", "solo").said()
    assert "queue 'celery' is paused (by `rl queues pause` or `rl celery drain`): its tasks wait; " in said
    _, told = shop.rl("doctor")
    assert "Queue 'celery' is paused; 0 tasks wait in it." in told
    assert "`rl celery drain` pause queues. To continue: `rl queues resume celery`." in told


def test_a_worker_says_that_it_does_not_serve_the_queue_of_an_rl_task(shop: Shop) -> None:
    """There is no such warning for Celery's own tasks, because Celery routes them."""
    said = shop.worker("-P", "solo").said()
    (warning,) = [line for line in said.splitlines() if "serves queue" in line]
    assert "serves queue 'later': tasks pushed to it wait (tests.support.celery_shop_app.count_stock); " in warning


def test_without_a_broker_nothing_is_touched(shop: Shop) -> None:
    shop.run("sell.delay('tea')")
    shop.broker.kill()
    code, told = shop.rl("celery", "drain", "-A", "tests.support.celery_shop_app")
    assert code == 3
    assert told.startswith("rl: the broker does not answer (")
    assert "nothing was sent, and no queue was paused; " in told
    assert "Traceback" not in told
    assert [queue.paused for queue in shop.fleet.stats().queues] == [False]


def test_tasks_that_no_plain_worker_could_run_stay_and_are_listed(shop: Shop) -> None:
    shop.run("count_stock.push(); sell.delay('tea')")
    code, told = shop.rl("celery", "drain", "-A", "tests.support.celery_shop_app")
    assert code == 1
    assert "1 task sent to the broker." in told
    assert "1 task stayed in the ledger" in told
    code, told = shop.rl("celery", "drain", "-A", "no_such_app")
    assert code == 2
    assert "there is no Celery app 'no_such_app'" in told
    code, told = shop.rl("celery", "drain", "-A", "tests.support.celery_shop_app:nope")
    assert code == 2
    assert "module 'tests.support.celery_shop_app' has no attribute 'nope'; name the app as" in told


def test_only_an_app_can_be_installed_into() -> None:
    with pytest.raises(ConfigurationError, match=r"install takes the Celery app, .* not 'proj'"):
        install("proj")
