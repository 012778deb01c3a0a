from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from relier.dashboard.application import local_app
from relier.settings import Settings
from relier.store import SyncStore
from tests.cli.conftest import bare_environment, desk, scripts
from tests.support.cli_desk import Desk

__all__ = ["bare_environment", "desk", "scripts"]  # fixtures

ORIGIN = "http://localhost"


@pytest.fixture
def web(desk: Desk, settings: Settings, sync_store: SyncStore) -> Iterator[TestClient]:
    """The dashboard of a namespace, as `rl dashboard` serves it on loopback."""
    with TestClient(local_app(settings), base_url=ORIGIN, follow_redirects=False) as client:
        yield client
