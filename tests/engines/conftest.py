"""Fleets on the session's server: `fleet` with the lease that a test chooses, audited at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relier.settings import Settings
from tests.support.fleet import Fleet
from tests.support.servers import Server

NewFleet = Callable[..., Fleet]


@pytest.fixture
def fleets(server: Server, namespace: str, tmp_path: Path) -> Iterator[NewFleet]:
    """Start fleets: fleets(lease=60, server=…) gives workers with that lease, on that server."""
    made: list[Fleet] = []

    def new_fleet(lease: float = 1.0, on: Server | None = None) -> Fleet:
        settings = Settings(redis_url=(on or server).url, namespace=f"{namespace}-{len(made)}", heartbeat_ttl=lease)
        made.append(Fleet(settings, tmp_path / f"fleet{len(made)}"))
        return made[-1]

    try:
        yield new_fleet
        for one in made:
            one.check()
    finally:
        for one in made:
            one.close()


@pytest.fixture
def patient(fleets: NewFleet) -> Fleet:
    """A fleet with a lease of a minute: a task that comes back sooner did not wait for the lease."""
    return fleets(60)


@pytest.fixture
def fleet(fleets: NewFleet) -> Fleet:
    """A fleet with a lease of a second."""
    return fleets(1)
