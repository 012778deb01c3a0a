"""Fixtures of the store's own tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from either import Either, OpenStore

from relier.settings import Settings
from relier.store import AsyncStore, Scripts, SyncStore


@pytest.fixture(params=[AsyncStore, SyncStore], ids=["async", "sync"])
async def open_store(request: pytest.FixtureRequest, scripts: Scripts, namespace: str) -> AsyncIterator[OpenStore]:
    """open_store(url, clock=…, redis_retries=…, …) -> Either. Closed with the test."""
    opened: list[Either] = []

    def open_one(url: str, clock: Callable[[], float] | None = None, **settings: Any) -> Either:
        how = {} if clock is None else {"clock": clock}
        chosen = Settings(**{"redis_url": url, "namespace": namespace} | settings)
        opened.append(Either(request.param(chosen, scripts, **how)))
        return opened[-1]

    yield open_one
    for one in opened:
        await one.close()
