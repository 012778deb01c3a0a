"""Fixtures for tests of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relier.settings import Settings
from relier.store import AsyncStore, Scripts, SyncStore
from tests.support.either_store import Either, OpenStore
from tests.support.embedded_processes import Client, NewClient, is_free
from tests.support.servers import wait_until


@pytest.fixture(params=[AsyncStore, SyncStore], ids=["async", "sync"])
async def open_store(request: pytest.FixtureRequest, scripts: Scripts, namespace: str) -> AsyncIterator[OpenStore]:
    """Open stores: open_store(url, clock=…, redis_retries=…, …) -> Either. They are closed with the test."""
    opened: list[Either] = []

    def open_one(url: str, clock: Callable[[], float] | None = None, **settings: Any) -> Either:
        how = {} if clock is None else {"clock": clock}
        chosen = Settings(**{"redis_url": url, "namespace": namespace} | settings)
        opened.append(Either(request.param(chosen, scripts, **how)))
        return opened[-1]

    yield open_one
    for one in opened:
        await one.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The data folder of an embedded server. At the end of the test, all processes of that server must have ended."""
    yield tmp_path / "data"
    wait_until(lambda: is_free(tmp_path / "data" / "server.lock"), what="the end of the server")
    wait_until(lambda: is_free(tmp_path / "data" / "keeper.lock"), what="the end of the keeper")


@pytest.fixture
def new_client(folder: Path) -> Iterator[NewClient]:
    clients: list[Client] = []

    def start() -> Client:
        clients.append(Client(folder))
        return clients[-1]

    yield start
    for client in clients:
        if not client.process.stdin.closed:  # type: ignore[union-attr]
            client.end()
