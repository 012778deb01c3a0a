"""A dashboard shows one shard, and says so if it is given all of them."""

from __future__ import annotations

import pytest

pytest.importorskip("uvicorn")

from starlette.testclient import TestClient

from relier.dashboard import DashboardUser, app
from relier.errors import ShardsError
from relier.settings import Settings
from relier.settings.shards import shard_of
from relier.submit.client import Client
from tests.support.jobs import sharded as jobs


def test_a_dashboard_of_one_shard_shows_its_tasks(client: Client, sharded: Settings) -> None:
    ids = [each.id for each in jobs.add.push_many([(n,) for n in range(12)])]
    with TestClient(app(auth=lambda _: DashboardUser("ann", "viewer"), settings=sharded.of_shard(1))) as browser:
        overview, tasks = browser.get("/"), browser.get("/tasks?state=queued")
        assert (overview.status_code, tasks.status_code) == (200, 200)
        assert {each for each in ids if each in tasks.text} == {each for each in ids if shard_of(each, 4) == 1}


def test_a_dashboard_of_all_shards_is_refused(sharded: Settings) -> None:
    with pytest.raises(ShardsError, match="serve one for each shard, on a port or a path of its own"):
        app(auth=lambda _: DashboardUser("ann", "viewer"), settings=sharded)
