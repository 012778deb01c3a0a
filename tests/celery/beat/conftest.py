"""Beat nodes in this process, on a store whose time the test sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import celery
import pytest

from relier import use_client
from relier.celery import Beat, install
from relier.celery.messages import Message
from relier.celery.sending.control import message_in
from relier.ledger.records import Task
from relier.ledger.schedule_records import Firing, StoredSchedule
from relier.settings import Settings
from tests.support.crew import Crew

HERE = Path(__file__).parent
BROKER = "redis://127.0.0.1:1"  # never contacted


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all of these tests on every version of Celery, and mark those with real processes as slow."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.smoke)
            if "shop" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.slow)


def count(*args: Any, **kwargs: Any) -> None: ...


class Desk:
    """Apps on one namespace, their beats, and the state of the ledger."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.apps: list[Any] = []

    def app(self, entries: dict[str, Any], adopt: Any = True, main: str = "shop", **conf: Any) -> Any:
        app = celery.Celery(main, broker=BROKER, set_as_current=False)
        app.conf.update(beat_schedule=entries, result_expires=None, **conf)
        app.task(name="shop.count")(count)
        if adopt is not None:
            install(app, adopt=adopt)
        self.apps.append(app)
        return app

    def beat(self, entries: dict[str, Any], **options: Any) -> Beat:
        """Return a beat node that has declared its entries."""
        node = Beat(self.app(entries, **options))
        node.tick()
        return node

    def advance(self, seconds: float) -> None:
        self.crew.advance(seconds)

    def stored(self, name: str) -> StoredSchedule:
        (found,) = self.crew.run(self.crew.ledger.schedules(f"shop:{name}")).schedules
        return found

    def fires(self, name: str) -> list[Firing]:
        """Return the outcomes of the occurrences, the latest first."""
        return list(self.stored(name).fires)

    def sent(self, name: str) -> Task:
        """Return the task of the latest occurrence."""
        return self.crew.get(self.stored(name).last)

    def message(self, name: str) -> Message:
        return message_in(self.sent(name), self.crew.client.keyring)


@pytest.fixture
def desk(settings: Settings) -> Iterator[Desk]:
    crew = Crew(settings, clocked=True)
    made = Desk(crew)
    yield made
    use_client(None)
    crew.client.close()
    for app in made.apps:
        app.close()
