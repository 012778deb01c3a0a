"""The JSON API: every path of its description answers as described."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

from tests.dashboard.pressing import csrf_of
from tests.support.cli_desk import Desk


def described(web: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = web.get("/api/openapi.json").json()
    return found


def test_every_read_that_is_described_answers(web: TestClient, desk: Desk) -> None:
    task = desk.dead()
    for path, methods in described(web)["paths"].items():
        if "get" not in methods:
            continue
        needed = {one["name"]: task for one in methods["get"]["parameters"] if one["required"]}
        answer = web.get(f"/api{path}", params=needed)
        assert str(answer.status_code) in methods["get"]["responses"], (path, answer.text)
        assert isinstance(answer.json(), dict)


def test_every_action_that_is_described_exists(web: TestClient) -> None:
    header = {"X-CSRF-Token": csrf_of(web)}
    for path, methods in described(web)["paths"].items():
        if "post" in methods:
            answer = web.post(f"/api{path}", json={}, headers=header)
            assert (answer.status_code, answer.json()["ok"]) == (400, False), (path, answer.text)


def test_an_action_answers_with_what_it_did(web: TestClient, desk: Desk) -> None:
    dead = [desk.dead(), desk.dead()]
    header = {"X-CSRF-Token": csrf_of(web)}
    done = web.post("/api/do/tasks/replay", json={"id": dead}, headers=header)
    assert (done.status_code, done.json()["says"]) == (200, "2 tasks were replayed.")
    again = web.post("/api/do/tasks/replay", json={"id": dead}, headers=header)
    assert (again.status_code, again.json()["ok"]) == (409, False)
    assert web.get("/api/actions").json()["actions"][0]["id"] == again.json()["action"]


def test_errors_are_json_too(web: TestClient) -> None:
    assert web.get("/api/task?id=none").json()["error"].startswith("There is no task none")
    header = {"X-CSRF-Token": csrf_of(web), "Content-Type": "application/json"}
    for wrong in ("{", "[1]"):
        answer = web.post("/api/do/queues/pause", content=wrong, headers=header)
        assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert web.get("/api/tasks?state=none").status_code == 400
