"""Find tasks by time and by the beginning of an id, follow a trace, and see a workflow as a graph."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from relier.dashboard.application import local_app
from relier.dashboard.reads import search
from relier.envelope import seal
from relier.settings import Settings
from tests.dashboard.pressing import csrf_of
from tests.dashboard.shop_data import fill
from tests.support.cli_desk import Desk

EVIL = "<script>alert(1)</script>"


def ids_in(web: TestClient, path: str, **query: Any) -> set[str]:
    return {task["id"] for task in web.get(path, params=query).json()["tasks"]}


def utc(web: TestClient, ahead_s: int = 0) -> str:
    from relier.dashboard.rendering import utc_time

    return utc_time(web.get("/api/overview").json()["now_ms"] + 1000 * ahead_s)


# --- by time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/tasks?state=dead", "/api/dead"])
def test_tasks_are_filtered_by_time(web: TestClient, desk: Desk, path: str) -> None:
    task = desk.dead()
    before, after = utc(web, -60), utc(web, 60)
    path, _, query = path.partition("?")
    state = dict([query.split("=")]) if query else {}
    for times, found in (
        ({"since": before}, {task}),
        ({"since": after}, set()),
        ({"until": before}, set()),
        ({"since": before, "until": after}, {task}),
        ({"since": f"{before.removesuffix('Z')}+00:00"}, {task}),
    ):
        assert ids_in(web, path, **state, **times) == found, times


def test_groups_of_dead_letters_are_those_of_the_time(web: TestClient, desk: Desk) -> None:
    """Which dead letters came with the last deploy?"""
    desk.dead("ValueError", name="shop.pay")
    assert [one["count"] for one in web.get("/api/dead", params={"since": utc(web, -60)}).json()["groups"]] == [1]
    assert web.get("/api/dead", params={"since": utc(web, 60)}).json()["groups"] == []
    assert "No dead letters match" in web.get("/dead", params={"since": utc(web, 60)}).text


def test_a_group_is_replayed_for_its_time_only(web: TestClient, desk: Desk) -> None:
    task = desk.dead("timeout", name="shop.pay")
    form = {"action": "tasks/replay", "reason": "timeout", "name": "shop.pay"}
    for since, found in ((utc(web, -60), True), (utc(web, 60), False)):
        shown = web.post("/preview", data={"csrf_token": csrf_of(web), "since": since, **form}).text
        assert (task in shown) == found


@pytest.mark.parametrize("odd", ["yesterday", "2026-13-01", "9" * 30, EVIL])
def test_an_odd_time_is_refused(web: TestClient, desk: Desk, odd: str) -> None:
    answer = web.get("/tasks", params={"since": odd})
    assert answer.status_code == 400
    assert "<script>alert" not in answer.text


# --- by the beginning of an id -----------------------------------------------------------------------------------


def test_a_search_goes_on_where_it_stopped(web: TestClient, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "KEYS_AT_ONCE", 10)
    for _ in range(400):
        desk.push()
    wanted = desk.push(id="needle-1")
    found, cursor, pages = set[str](), "", 0
    while pages == 0 or cursor:
        page = web.get("/api/tasks", params={"id": "needle", "cursor": cursor}).json()
        found |= {task["id"] for task in page["tasks"]}
        cursor, pages = page["cursor"], pages + 1
        assert page["complete"] == (not cursor)
    assert found == {wanted}
    assert pages > 1
    first = web.get("/tasks?id=nothing").text
    assert "Search further" in first
    assert "data-follow" in first


# --- trace -------------------------------------------------------------------------------------------------------


def test_a_task_links_to_its_trace(desk: Desk, settings: Settings) -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    task, odd = (desk.push(payload=seal(b"[[],{}]", schema_version=1, pushed_ms=1, trace=t)) for t in (trace, EVIL))
    template = "https://traces.example/t/{trace_id}?span={span_id}"
    with TestClient(local_app(settings.replace(dashboard_trace_url=template)), base_url="http://localhost") as web:
        assert f'href="https://traces.example/t/{"a" * 32}?span={"b" * 16}"' in web.get(f"/task?id={task}").text
        assert "traces.example" not in web.get(f"/task?id={odd}").text
    with TestClient(local_app(settings), base_url="http://localhost") as web:
        assert "traces.example" not in web.get(f"/task?id={task}").text


def test_a_task_links_to_its_log_lines(desk: Desk, settings: Settings) -> None:
    task = desk.push(id='a"b&c/<d>')
    chosen = settings.replace(dashboard_log_url="https://logs.example/?q={task_id}&x=1")
    with TestClient(local_app(chosen), base_url="http://localhost") as web:
        text = web.get("/task", params={"id": task}).text
    assert 'href="https://logs.example/?q=a%22b%26c%2F%3Cd%3E&amp;x=1"' in text


# --- graph -------------------------------------------------------------------------------------------------------


def test_a_workflow_is_a_graph_of_its_links_and_callbacks(web: TestClient, desk: Desk) -> None:
    workflow = fill(desk)["workflow"]
    graph = web.get(f"/api/batch?id={workflow}").json()["graph"]
    names = ["shop.catalogue.import_page", "shop.catalogue.check", "shop.catalogue.index"]
    assert [[node["label"] for node in row] for row in graph["rows"]] == [names] * 5
    states = sorted([node["state"] for node in row] for row in graph["rows"])
    assert states == sorted(
        [
            ["done", "done", "queued"],
            ["done", "done", "queued"],
            ["done", "running", "planned"],
            ["dead", "planned", "planned"],
            ["done", "queued", "planned"],
        ]
    )
    assert [(one["name"], one["label"], one["state"]) for one in graph["callbacks"]] == [
        ("then", "shop.catalogue.announce", "planned"),
        ("on_failure", "shop.catalogue.alert", "queued"),
    ]
    text = web.get(f"/batch?id={workflow}").text
    assert 'aria-label="Callbacks"' in text
    assert text.count("shop.catalogue.index") == 5


def test_a_damaged_plan_breaks_no_page(web: TestClient, desk: Desk) -> None:
    workflow = fill(desk)["workflow"]
    for plan, value in (("then", b"\xc1"), ("odd", b"\x93\x01\x02\x03"), (EVIL, b"x" * 70_000)):
        desk.command("HSET", desk.key("plans", workflow), plan, value)
    answer = web.get(f"/batch?id={workflow}")
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
