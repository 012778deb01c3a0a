"""A store that refuses calls on demand, and a client and a worker that reach it through a proxy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "store"))  # its proxy serves here too

from refusing import Refusing
from wiretap import Proxy

from relier import Settings
from servers import Server


@pytest.fixture
def refusing(server: Server) -> Iterator[Refusing]:
    with Proxy(server.port) as proxy:
        yield Refusing(proxy)


@pytest.fixture
def through(settings: Settings, refusing: Refusing) -> Settings:
    """Settings that lead through the proxy, with deadlines that a test can wait for."""
    return settings.model_copy(
        update={
            "redis_url": refusing.proxy.url,
            "redis_deadline": 0.2,
            "redis_retries": 1,
            "redis_breaker_cooldown": 0.1,
            "admission_limit": 0,
        }
    )
