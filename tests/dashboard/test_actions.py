"""Every button, on a real store: what it changes, and that it is recorded."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from relier.cli.audit import audit
from relier.dashboard.actions import ACTIONS
from relier.dashboard.application import local_app
from relier.ledger.batches.membership import BatchHeader
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.pages import read_stats
from relier.settings import Settings
from tests.dashboard.pressing import csrf_of, press, pressed
from tests.support.cli_desk import Desk, body


def state(desk: Desk, task: str) -> str:
    return str(desk.get(task).record.state.value)


def last_action(web: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = web.get("/api/actions").json()["actions"][0]
    return found


def test_a_queue_is_paused_and_resumed(web: TestClient, desk: Desk) -> None:
    desk.push()
    assert "Queue default is paused." in pressed(web, "queues/pause", queue="default")
    assert read_stats(desk.run, desk.ledger).is_paused("default")
    assert "Queue default is running." in pressed(web, "queues/resume", queue="default")
    assert not read_stats(desk.run, desk.ledger).is_paused("default")
    done = last_action(web)
    assert (done["user"], done["action"], done["target"], done["ok"]) == (
        "local",
        "queues/resume",
        {"queue": "default"},
        True,
    )


def test_a_task_is_cancelled(web: TestClient, desk: Desk) -> None:
    task = desk.push()
    assert "1 task was cancelled" in pressed(web, "tasks/cancel", id=task)
    assert state(desk, task) == "cancelled"
    assert "Not done" in pressed(web, "tasks/cancel", id=desk.done())


def test_a_dead_task_is_replayed(web: TestClient, desk: Desk) -> None:
    task = desk.dead()
    assert "1 task was replayed." in pressed(web, "tasks/replay", id=task)
    assert state(desk, task) == "queued"
    assert "1 was not" in pressed(web, "tasks/replay", id=task)


def test_a_dead_task_is_replayed_with_other_arguments(web: TestClient, desk: Desk) -> None:
    task = desk.dead()
    assert "Expected [[" in html.unescape(pressed(web, "tasks/edit", id=task, arguments='{"a": 1}'))
    pressed(web, "tasks/edit", id=task, arguments='[["cus_2", 7], {}]')
    assert state(desk, task) == "queued"
    found = web.get(f"/api/task?id={task}").json()
    assert found["payload"]["body"] == [["cus_2", 7], {}]
    assert "cus_2" not in json.dumps(last_action(web)), "arguments may be private"


def test_a_dead_task_is_discarded(web: TestClient, desk: Desk) -> None:
    task = desk.dead()
    assert "1 task was discarded." in pressed(web, "tasks/discard", id=task)
    assert web.get(f"/task?id={task}").status_code == 404


def test_a_bulk_action_shows_a_preview_first(web: TestClient, desk: Desk) -> None:
    dead, queued = [desk.dead(), desk.dead()], desk.push()
    shown = web.post(
        "/preview", data={"csrf_token": csrf_of(web), "action": "tasks/replay", "id": [*dead, queued]}
    ).text
    assert "<strong>2 tasks.</strong>" in shown
    assert "1 selected task is left alone" in shown
    assert {state(desk, task) for task in dead} == {"dead"}
    picks = [f"{desk.version(task)} {task}" for task in dead]
    assert all(pick in shown for pick in picks)
    assert "2 tasks were replayed." in pressed(web, "tasks/replay", pick=picks)
    assert {state(desk, task) for task in dead} == {"queued"}


def test_a_group_of_dead_letters_is_replayed(web: TestClient, desk: Desk) -> None:
    one, other = desk.dead("timeout", name="shop.pay"), desk.dead("ValueError", name="shop.pay")
    form = {"csrf_token": csrf_of(web), "action": "tasks/replay", "reason": "timeout", "name": "shop.pay"}
    shown = web.post("/preview", data=form).text
    assert (one in shown, other in shown) == (True, False)


def test_a_task_that_changed_after_its_preview_is_left_alone(web: TestClient, desk: Desk) -> None:
    task = desk.dead()
    pick = f"{desk.version(task)} {task}"
    desk.replay(task)
    assert "0 tasks were discarded. 1 was not" in pressed(web, "tasks/discard", pick=pick)
    assert state(desk, task) == "queued"


def test_a_schedule_is_paused_resumed_and_run(web: TestClient, desk: Desk) -> None:
    from relier import rl_task
    from relier.schedules.api import Schedules
    from relier.submit.client import Client

    @rl_task(name="shop.nightly")
    def nightly() -> None: ...

    client = Client(desk.settings)
    Schedules(client).create("nightly", nightly, cron="0 3 * * *")
    client.close()
    assert "0 3 * * *" in web.get("/schedules").text
    assert "Next runs" in web.get("/schedule?name=nightly").text
    assert "Schedule nightly is paused." in pressed(web, "schedules/pause", name="nightly")
    assert "Schedule nightly is active." in pressed(web, "schedules/resume", name="nightly")
    assert "The task of schedule nightly was pushed" in pressed(web, "schedules/run", name="nightly")
    assert web.get("/api/tasks?state=queued").json()["tasks"][0]["name"] == "shop.nightly"


def test_a_batch_is_cancelled(web: TestClient, desk: Desk) -> None:
    desk.run(desk.ledger.open_batch(BatchHeader(id="b1", name="import", open=True, lease_ms=60_000)))
    assert "import" in web.get("/batches").text
    assert "Batch b1 is cancelled." in pressed(web, "batches/cancel", id="b1")
    assert web.get("/api/batch?id=b1").json()["state"] in {"cancelled", "cancelling"}


def test_a_node_is_drained_and_resumed(web: TestClient, desk: Desk) -> None:
    assert "was ordered to drain" in pressed(web, "nodes/drain", id=desk.boot)
    assert web.get("/api/nodes").json()["nodes"][0]["state"] == "drained"
    assert "was ordered to resume" in pressed(web, "nodes/resume", id=desk.boot)
    assert "There is no node gone" in pressed(web, "nodes/drain", id="gone")


def test_a_limit_is_set_and_cleared(web: TestClient, desk: Desk) -> None:
    desk.push(limits=(RunLimit("tenant:{id}", "tenant:1", LimitNumbers(2)),))
    assert "Limit tenant:1 allows" in pressed(web, "limits/set", name="tenant:1", concurrency="5")
    (row,) = web.get("/api/limits").json()["limits"]
    assert (row["concurrency"], row["set_by_operator"]) == (5, "tenant:1")
    assert "Limit tenant:1 is cleared" in pressed(web, "limits/clear", name="tenant:1")
    assert "Not done" in pressed(web, "limits/set", name="tenant:1", rate="often")
    assert "Not done" in pressed(web, "limits/set", name="other", concurrency="5")


def test_the_actions_of_operators_are_shown(web: TestClient, desk: Desk) -> None:
    pressed(web, "queues/pause", queue="default")
    press(web, "nodes/drain", id="<script>gone</script>")
    page = web.get("/actions").text
    assert "queues/pause" in page
    assert "not done" in page
    assert "<script>gone" not in page
    assert desk.command("TYPE", desk.key("actions")) in (b"stream", "stream")
    report = audit(desk.store, desk.ledger)
    assert [finding for finding in report.findings if "actions" in str(finding)] == []


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_an_action_without_its_fields_is_refused_and_recorded(web: TestClient, action: str) -> None:
    assert "Not done" in pressed(web, action)
    assert last_action(web)["ok"] is False


def test_an_unknown_action_is_refused(web: TestClient) -> None:
    assert press(web, "tasks/explode").status_code == 400


def test_a_full_store_still_lets_operators_discard(desk: Desk, settings: Settings, web: TestClient) -> None:
    task = desk.dead(payload=body("x" * 1000))
    desk.command("CONFIG", "SET", "maxmemory", "1")
    try:
        said = pressed(web, "tasks/discard", id=task)
    finally:
        desk.command("CONFIG", "SET", "maxmemory", "0")
    assert "1 task was discarded." in said


def test_two_dashboards_show_the_same_actions(web: TestClient, settings: Settings) -> None:
    pressed(web, "queues/pause", queue="default")
    with TestClient(local_app(settings), base_url="http://localhost") as other:
        assert other.get("/api/actions").json() == web.get("/api/actions").json()
