"""What `install` makes of an app, whatever the app was before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import celery
import pytest

from relier import use_client
from relier.celery import install
from relier.celery.adoption import adoption_of
from relier.ledger.records import Record
from relier.settings import Settings

Make = Callable[..., Any]
BROKER = "redis://127.0.0.1:1"  # nobody asks it


@pytest.fixture
def make(settings: Settings) -> Iterator[Make]:
    """An adopted app. `before`: what is done to it before."""
    apps = []

    def app_of(broker: Any = BROKER, before: Callable[[Any], Any] = id, **options: Any) -> Any:
        app = celery.Celery("shop", broker=broker, set_as_current=False, **options)
        apps.append(app)
        before(app)
        return install(app, adopt=True, settings=settings)

    yield app_of
    use_client(None)
    for app in apps:
        adoption_of(app).client.close()
        app.close()


def record(app: Any, task_id: str) -> Record:
    client = adoption_of(app).client
    return client.run(client.ledger.get(task_id)).record


@pytest.mark.parametrize("broker", [BROKER, [BROKER, "redis://127.0.0.1:2"], f"{BROKER};redis://127.0.0.1:2"])
def test_a_list_of_brokers_is_of_the_kind_of_its_first(make: Make, broker: Any) -> None:
    app = make(broker)
    first, last = (record(app, app.send_task("shop.sell", priority=priority).id) for priority in (0, 9))
    assert (first.spec.priority, last.spec.priority) == (0, -9)  # on Redis Celery's 0 comes first
    assert app.conf.broker_transport_options["socket_timeout"] == 5.0
