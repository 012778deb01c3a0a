"""A fleet per test: real workers on the session's server, with a lease of one second. Audited at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet import LEASE_S, Fleet
from relier.settings import Settings
from servers import Server


@pytest.fixture
def fleet(server: Server, namespace: str, tmp_path: Path) -> Iterator[Fleet]:
    one = Fleet(Settings(redis_url=server.url, namespace=namespace, heartbeat_ttl=LEASE_S), tmp_path / "fleet")
    try:
        yield one
        one.check()
    finally:
        one.close()
