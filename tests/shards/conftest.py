"""A namespace with four shards on the session's server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relier.settings import Settings
from relier.submit.client import Client, use_client
from tests.support.servers import Server


@pytest.fixture
def sharded(server: Server, namespace: str) -> Settings:
    return Settings(redis_url=server.url, namespace=namespace, shards=4)


@pytest.fixture
def client(sharded: Settings) -> Iterator[Client]:
    """The client of all four shards, which tasks push through."""
    made = Client(sharded)
    use_client(made)
    yield made
    use_client(None)
    made.close()
