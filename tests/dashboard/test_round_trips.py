"""The number of round trips of every page does not grow with the namespace."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from relier.dashboard.pages import PAGES
from tests.dashboard.crowded import CrowdSize, crowd
from tests.dashboard.round_trips import counted_round_trips, pages_of
from tests.support.cli_desk import Desk

MOST = 5


@pytest.mark.timeout(120)
def test_every_page_takes_at_most_five_round_trips(web: TestClient, desk: Desk) -> None:
    """More queues, nodes, limits, schedules and batches than one page of any scan returns."""
    ids = crowd(desk, CrowdSize(tasks=3_000, queues=1_100, nodes=220, limits=300, schedules=250, batches=60))
    paths = pages_of(ids)
    assert {page.path for page in PAGES} == {path.partition("?")[0] for path in paths}
    assert web.get("/actions").status_code == 200  # connects, and loads the scripts
    for path in paths:
        web.get(path)
    taken = {}
    with counted_round_trips() as trips:
        for path in paths:
            trips.reset()
            answer = web.get(path)
            assert answer.status_code == 200, (path, answer.text)
            taken[path] = trips.count
    assert {path: count for path, count in taken.items() if not 0 < count <= MOST} == {}


def test_the_figures_of_a_large_namespace_are_complete(web: TestClient, desk: Desk) -> None:
    size = CrowdSize(tasks=2_000, queues=700, nodes=120, limits=150, schedules=220, batches=60)
    crowd(desk, size)
    found = web.get("/api/overview").json()
    assert found["states"] == {
        "running": 0,
        "queued": 1_400 + 2 * size.limits,
        "scheduled": 200,
        "dead": 200,
        "cancelled": 0,
        "done": 200,
    }
    assert found["all_read"]
    assert web.get("/api/queues").json()["total"] == size.queues + 1  # and the one in which tasks ended
    assert web.get("/api/nodes").json()["total"] == size.nodes + 3  # the desk's worker, and two that ended tasks
    assert web.get("/api/limits").json()["total"] == size.limits
    assert web.get("/api/schedules").json()["total"] == size.schedules
    assert all(row["concurrency"] == 1 for row in web.get("/api/limits").json()["limits"])
