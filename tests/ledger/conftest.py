"""The ledger's scripts on a real server, with a clock that moves only by hand."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "store"))  # its proxy and its puppet server serve here too

from worlds import FAKE_TIME, World

from relier.ledger.ledger import Ledger, load_scripts
from relier.settings import Settings
from relier.store import Scripts, SyncStore

NewWorld = Callable[..., World]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def scripts() -> Scripts:
    """The ledger's scripts as they are: on the server's own TIME."""
    return load_scripts()


@pytest.fixture(scope="session")
def clocked_scripts() -> Scripts:
    """The ledger's scripts on a time that the test sets."""
    return load_scripts(lib__time=FAKE_TIME)


@pytest.fixture
def ledger(settings: Settings) -> Ledger:
    return Ledger(settings)


@pytest.fixture
def worlds(settings: Settings, clocked_scripts: Scripts) -> Iterator[NewWorld]:
    """worlds() -> a namespace of its own with a clock to set, as many as one likes. Each is audited at the end."""
    made: list[World] = []
    with SyncStore(settings, clocked_scripts) as store:

        def new_world() -> World:
            namespace = f"{settings.namespace}-{next(_numbers)}"
            made.append(World(store, settings.model_copy(update={"namespace": namespace})))
            return made[-1]

        yield new_world
        for world in made:
            if world.sound:
                world.audit()
            world.clear()


@pytest.fixture
def clocked(worlds: NewWorld) -> World:
    """One namespace with a clock to set and a boot named `boot` with a lease of 5 s."""
    world = worlds()
    world.join()
    return world
