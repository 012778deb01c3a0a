"""`app.control.purge()`: tasks that wait in the app's queues no longer run, wherever they wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import celery
import pytest
from celery import chord
from kombu import Queue

from relier import use_client
from relier.celery import install
from relier.celery.adoption import adoption_of
from relier.settings import Settings
from relier.states import State
from tests.celery.conftest import Shop
from tests.support.servers import Server, wait_until


def sell(what: Any) -> None:
    """Nobody runs it."""


@pytest.fixture
def app(settings: Settings, broker: Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return an app with two queues, adopted as the test needs it."""
    made = celery.Celery("shop", broker=f"{broker.tcp_url}/0", backend="cache+memory://", set_as_current=False)
    made.conf.update(task_queues=[Queue("celery"), Queue("parcels")], task_create_missing_queues=True)
    made.task(name="shop.sell")(sell)
    made.task(name="stock.count")(sell)
    install(made, adopt=getattr(request, "param", True), settings=settings)
    yield made
    use_client(None)
    adoption_of(made).client.close()
    made.close()


def state_of(app: Any, task_id: str) -> State:
    client = adoption_of(app).client
    state: State = client.run(client.ledger.get(task_id)).record.state
    return state


def test_purge_cancels_waiting_tasks_due_or_not(app: Any) -> None:
    sell = app.tasks["shop.sell"]
    waits = [sell.delay(1), sell.apply_async((2,), countdown=600), sell.apply_async((3,), queue="parcels")]
    elsewhere = sell.apply_async((4,), queue="of-others")
    app.amqp.queues.select(["celery", "parcels"])  # as `celery worker -Q` does
    assert app.control.purge() == 3
    assert {state_of(app, each.id) for each in waits} == {State.CANCELLED}
    assert state_of(app, elsewhere.id) is State.QUEUED
    assert (app.control.discard_all(), waits[0].state) == (0, "PENDING")


def test_more_tasks_than_one_page_are_cancelled(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relier.celery.sending.control.PAGE", 3)
    for n in range(10):
        app.tasks["shop.sell"].apply_async((n,), countdown=n % 2 * 600)
    assert app.control.purge() == 10


def test_purge_leaves_claimed_tasks_alone(app: Any) -> None:
    taken = app.tasks["shop.sell"].delay(1)
    client = adoption_of(app).client
    client.run(client.ledger.register("worker", 60_000))
    client.run(client.ledger.claim("worker", 1, ["celery"], 1))
    assert app.control.purge() == 0
    assert state_of(app, taken.id) is State.RUNNING


@pytest.mark.parametrize("app", [["shop.*"]], indirect=True)
def test_messages_of_the_broker_are_removed_as_before(app: Any) -> None:
    ours = app.tasks["shop.sell"].delay(1)
    app.tasks["stock.count"].delay(1)
    assert app.control.purge() == 2
    assert state_of(app, ours.id) is State.CANCELLED


def test_the_join_of_a_chord_is_not_purged(app: Any) -> None:
    members = chord([app.tasks["shop.sell"].s(n) for n in (1, 2)], app.tasks["shop.sell"].s(), app=app)
    group = members.apply_async().parent
    assert app.control.purge() == 2
    client = adoption_of(app).client
    parts = [client.run(client.ledger.get(f"{each.id}.part")).record for each in group.results]
    assert app.control.purge() == 0
    assert {(part.name, part.state) for part in parts} == {("relier.part", State.QUEUED)}


def test_a_chord_whose_members_are_purged_fails(shop: Shop) -> None:
    shop.env["SHOP_BACKEND"] = f"{shop.broker.tcp_url}/1"
    code = """
result = chord([price.s(1), price.s(2)])(add_up.s().on_error(complain.s()))
print(result.id, app.control.purge())
"""
    body, purged = shop.run(f"from celery import chord\n{code}").split()
    assert purged == "2"
    shop.worker()
    wait_until(lambda: shop.printed() == [f"complained of {body}"], 30, "the error callback of the body")
