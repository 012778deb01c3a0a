"""Every page on a real store: what it shows, and that what others wrote is shown as text."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from relier.dashboard.application import local_app
from relier.dashboard.pages import PAGES
from relier.ledger.batches.membership import BatchHeader, Member
from relier.ledger.nodes import Role
from relier.settings import Settings
from tests.dashboard.screens import paths_of
from tests.dashboard.shop_data import fill
from tests.support.cli_desk import LEASE_MS, Desk, body, failure

EVIL = "<script>alert(1)</script>"


def test_every_page_of_an_empty_namespace_opens(web: TestClient) -> None:
    for page in PAGES:
        answer = web.get(page.path)
        needs = page.name in {"task", "batch", "schedule"}
        assert answer.status_code == (400 if needs else 200), (page.path, answer.text)
        assert answer.headers["content-type"].startswith("text/html")


def test_the_overview_counts_tasks_and_lists_what_needs_attention(web: TestClient, desk: Desk) -> None:
    desk.one_of_each()
    desk.push(queue="mail")
    text = web.get("/").text
    assert "1 task died in the last 5 minutes" in text
    assert "no worker serves it" in html.unescape(text)
    assert '<span class="count">2</span><span class="state queued">queued</span>' in text


def test_a_queue_shows_its_depth_and_whether_anybody_serves_it(web: TestClient, desk: Desk) -> None:
    desk.push()
    desk.push(queue="mail")
    desk.run(desk.ledger.pause("default", 0))
    text = web.get("/queues").text
    assert "no worker" in text
    assert "paused" in text
    assert "mail" not in web.get("/queues?q=def").text.split("<table>")[1]


@pytest.mark.parametrize("state", ["running", "queued", "scheduled", "dead", "cancelled", "done"])
def test_tasks_are_listed_by_state(web: TestClient, desk: Desk, state: str) -> None:
    ids = desk.one_of_each()
    text = web.get(f"/tasks?state={state}").text
    assert [name for name, task in ids.items() if task in text] == [state]


def test_tasks_are_filtered_by_queue_name_and_id(web: TestClient, desk: Desk) -> None:
    a, b = desk.push(queue="a", name="shop.pay"), desk.push(queue="b", name="shop.mail")
    for query, found in (("queue=a", a), ("name=mail", b), (f"id={a}", a)):
        text = web.get(f"/tasks?state=queued&{query}").text
        assert (a in text.split("<table>")[1], b in text.split("<table>")[1]) == (found == a, found == b), query
    assert a in web.get(f"/tasks?id={a[:16]}").text
    assert "No queued tasks" in web.get("/tasks?state=queued&name=none").text


def test_a_long_list_continues_at_its_cursor(web: TestClient, desk: Desk) -> None:
    ids = {desk.cancelled() for _ in range(60)}
    first = web.get("/api/tasks?state=cancelled").json()
    second = web.get("/api/tasks", params={"state": "cancelled", "cursor": first["cursor"]}).json()
    assert {task["id"] for page in (first, second) for task in page["tasks"]} == ids
    assert (len(first["tasks"]), second["cursor"]) == (50, "")


def test_a_task_page_explains_its_state(web: TestClient, desk: Desk) -> None:
    ids = desk.one_of_each()
    waits = html.unescape(web.get(f"/task?id={ids['queued']}").text)
    assert "It waits: it is next in its queue." in waits
    died = html.unescape(web.get(f"/task?id={ids['dead']}").text)
    assert "It died at" in died
    assert "ValueError: no such customer" in died
    assert "Traceback" in died
    assert '"cus_1"' in died


def test_dead_letters_are_grouped_by_reason_and_task(web: TestClient, desk: Desk) -> None:
    for reason, name in (("ValueError", "shop.pay"), ("ValueError", "shop.pay"), ("timeout", "shop.mail")):
        desk.dead(reason, name=name)
    found = web.get("/api/dead").json()
    assert [(one["reason"], one["name"], one["count"]) for one in found["groups"]] == [
        ("ValueError", "shop.pay", 2),
        ("timeout", "shop.mail", 1),
    ]
    assert len(web.get("/api/dead?reason=timeout").json()["tasks"]) == 1


def test_a_task_that_does_not_exist_is_a_404(web: TestClient) -> None:
    answer = web.get("/task?id=none")
    assert answer.status_code == 404
    assert "Not found" in answer.text


PATHS = (
    "/",
    "/queues",
    "/tasks",
    "/dead",
    "/batches",
    "/batch?id=b1",
    "/nodes",
    "/events",
    "/limits",
    "/outbox",
    "/actions",
)


@pytest.mark.parametrize("path", PATHS)
def test_hostile_names_are_shown_as_text(web: TestClient, desk: Desk, path: str) -> None:
    evil_queue = EVIL.replace(" ", "")
    desk.join(host=EVIL, pid=EVIL, queues=[evil_queue], version=EVIL)
    desk.push(queue=evil_queue, name=EVIL)
    desk.run(desk.ledger.pause(evil_queue, 0))
    desk.dead(EVIL, detail=failure(EVIL), name=EVIL, payload=body(EVIL))
    report = {"outbox": [{"table": EVIL, "database": EVIL, "state": EVIL, "breakers": {EVIL: EVIL}}]}
    desk.run(desk.ledger.register("relay.1.x", LEASE_MS, json.dumps({"host": EVIL, "kinds": [EVIL]}), Role.RELAY))
    desk.run(desk.ledger.beat("relay.1.x", LEASE_MS, report=json.dumps(report)))
    desk.run(desk.ledger.open_batch(BatchHeader(id="b1", name=EVIL, open=True, lease_ms=LEASE_MS)))
    desk.push(id=f"{EVIL}\"'", name=EVIL, member=Member(batch="b1"))
    text = web.get(path).text
    assert EVIL not in text
    assert "<script>" not in text


def test_a_hostile_task_is_shown_as_text(web: TestClient, desk: Desk) -> None:
    task = f"{EVIL}\"'><img/src=x>"
    desk.dead("boom", detail=failure(EVIL), id=task, name=EVIL, payload=body(EVIL, {EVIL: EVIL}))
    answer = web.get("/task", params={"id": task})
    assert answer.status_code == 200
    assert "<script>" not in answer.text
    assert "<img/src" not in answer.text
    assert html.escape(EVIL) in answer.text
    assert "%3Cscript%3E" in web.get("/dead").text


def test_hostile_parameters_are_shown_as_text(web: TestClient, desk: Desk) -> None:
    desk.one_of_each()
    for page in PAGES:
        answer = web.get(page.path, params=dict.fromkeys((*page.parameters, "said", "cursor"), EVIL))
        assert answer.status_code in {200, 400, 404}, (page.path, answer.status_code)
        assert "<script>" not in answer.text


@pytest.mark.parametrize("odd", ["x y", "1 ", "²", "9" * 30 + "-0", "\x00", "nan a"])
def test_odd_parameters_are_refused_or_ignored(web: TestClient, desk: Desk, odd: str) -> None:
    desk.one_of_each()
    for page in PAGES:
        answer = web.get(page.path, params=dict.fromkeys((*page.parameters, "said", "cursor"), odd))
        assert answer.status_code in {200, 400, 404, 502}, (page.path, answer.status_code, answer.text)
    assert web.get("/tasks", params={"state": "dead", "cursor": odd}).status_code in {200, 400}


def test_two_dashboards_show_the_same(web: TestClient, desk: Desk, settings: Settings) -> None:
    """They keep nothing but recent rates of what they have read themselves."""
    ids = fill(desk)
    paths = [f"/api{path}" if path != "/" else "/api/overview" for path in paths_of(ids).values() if "#" not in path]

    def lasting(data: Any) -> Any:
        own = ("now_ms", "rates", "in_rate", "out_rate", "throughput", "lease_left_ms")
        if isinstance(data, dict):
            return {name: lasting(value) for name, value in data.items() if name not in own}
        return [lasting(one) for one in data] if isinstance(data, list) else data

    with TestClient(local_app(settings), base_url="http://localhost") as other:
        for path in paths:
            one, two = lasting(web.get(path).json()), lasting(other.get(path).json())
            for found in (one, two):
                found.pop("why", None)  # says how long ago things happened
                found.pop("times_ms", None)
            assert one == two, path


def test_values_pass_the_redaction_hook(desk: Desk, settings: Settings) -> None:
    from relier.dashboard.application import local_app

    task = desk.dead(payload=body("secret-value"), detail=failure("secret-value"))
    done = desk.done(json.dumps("secret-value").encode())
    hidden = settings.replace(redact="tests.support.cli_desk:hide_all")
    with TestClient(local_app(hidden), base_url="http://localhost") as web:
        for path in (f"/task?id={task}", f"/task?id={done}", "/dead", f"/api/task?id={task}"):
            assert "secret-value" not in web.get(path).text, path


def test_a_store_that_is_away_is_a_page_too(settings: Settings) -> None:
    from relier.dashboard.application import local_app

    away = settings.replace(redis_url="redis://127.0.0.1:1", redis_deadline=0.2)
    with TestClient(local_app(away), base_url="http://localhost") as web:
        answer = web.get("/")
    assert answer.status_code == 503
    assert "The store cannot be reached" in answer.text
