"""`idempotency_lock` on a real server: a namespace per test, and each behaviour in blocking code and on an event
loop."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from relier import Client, Settings, use_client
from relier.lock import IdempotencyLock, idempotency_lock
from tests.support.locking import Enter


@pytest.fixture
def changed() -> dict[str, Any]:
    """The settings that differ from the defaults. Override this fixture."""
    return {}


@pytest.fixture
async def client(settings: Settings, changed: dict[str, Any]) -> AsyncIterator[Client]:
    """The client that locks use."""
    own = Client(settings.replace(**changed))
    use_client(own)
    yield own
    use_client(None)
    await own.aclose()


@pytest.fixture(params=["async", "sync"])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def enter(client: Client, kind: str) -> Enter:
    """Enter a lock: enter(key, ttl) is the block of one lock, in blocking code or on an event loop."""

    @contextlib.asynccontextmanager
    async def block(key: str = "k", ttl: float = 3600) -> AsyncIterator[IdempotencyLock]:
        lock = idempotency_lock(key, ttl)
        if kind == "async":
            async with lock:
                yield lock
        else:
            with lock:
                yield lock

    return block
