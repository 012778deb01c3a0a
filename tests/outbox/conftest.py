"""A shop with an outbox, and a desk that runs attempts by hand, on each database in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from relier import Client
from tests.support.databases import Database
from tests.support.inbox_desk import Desk, metadata, where
from tests.support.outbox_shop import Shop, client, engine_of


@pytest.fixture
def shop(database: Database, client: Client) -> Iterator[Shop]:
    """A shop with an outbox, on each database in turn."""
    with Shop(database.url, client) as made:
        yield made


@pytest.fixture
def pg_shop(postgres: Database, client: Client) -> Iterator[Shop]:
    with Shop(postgres.url, client) as made:
        yield made


@pytest.fixture
async def desk(database: Database, client: Client) -> AsyncIterator[Desk]:
    """A desk that runs attempts by hand, on each database in turn."""
    engine = where["engine"] = engine_of(database.url)
    metadata.create_all(engine)
    yield Desk(client, engine)
    engine.dispose()


__all__ = ["client"]  # a fixture
