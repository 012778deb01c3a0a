"""The ledger's scripts on a real server, with a clock that only the test moves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from relier.ledger.events.writing import EventWriting
from relier.ledger.ledger import Ledger, load_scripts
from relier.settings import Settings
from relier.store import Scripts, SyncStore
from relier.testing.virtual import store_clock
from tests.support.ledger_world import World
from tests.support.servers import Server

NewWorld = Callable[..., World]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def scripts() -> Scripts:
    """The ledger's scripts on the server's own TIME. They write events, so that every test runs with them."""
    return load_scripts(EventWriting("always"))


@pytest.fixture(scope="session")
def clocked_scripts() -> Scripts:
    """The ledger's scripts on a time that the test sets."""
    return load_scripts(EventWriting("always"), lib__time=store_clock.TIME_LIBRARY)


@pytest.fixture
def ledger(settings: Settings) -> Ledger:
    return Ledger(settings)


@pytest.fixture
def worlds(settings: Settings, clocked_scripts: Scripts, scripts: Scripts) -> Iterator[NewWorld]:
    """Create namespaces: worlds() -> a new namespace with a clock to set. Each is audited at the end.

    worlds(server): on that server. worlds(clocked=False): on the server's own TIME. worlds(redis_…=…): other settings.
    """
    made: list[World] = []

    def new_world(server: Server | None = None, clocked: bool = True, **changed: Any) -> World:
        changed = {"namespace": f"{settings.namespace}-{next(_numbers)}"} | changed
        if server is not None:
            changed = {"redis_url": server.tcp_url} | changed
        own = settings.replace(**changed)
        made.append(World(SyncStore(own, clocked_scripts if clocked else scripts), own, clocked))
        return made[-1]

    yield new_world
    try:
        for world in made:
            if world.sound:
                world.audit()
                world.clear()
    finally:
        for world in made:
            world.store.close()


@pytest.fixture
def clocked(worlds: NewWorld) -> World:
    """One namespace with a clock to set, and a worker with the id `boot` and a lease of 5 s."""
    world = worlds()
    world.join()
    return world
