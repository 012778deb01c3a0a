"""A store that refuses calls on demand, and a client and a worker that reach it through a proxy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relier import Settings
from tests.support.refusing import Refusing
from tests.support.servers import Server
from tests.support.wire import Proxy


@pytest.fixture
def refusing(server: Server) -> Iterator[Refusing]:
    with Proxy(server.port) as proxy:
        yield Refusing(proxy)


@pytest.fixture
def through(settings: Settings, refusing: Refusing) -> Settings:
    """Return settings that lead through the proxy, with deadlines short enough for a test."""
    return settings.replace(
        redis_url=refusing.proxy.url,
        redis_deadline=0.2,
        redis_retries=1,
        redis_breaker_cooldown=0.1,
        admission_limit=0,
    )
