"""rl slo: burn rates of objectives, and numbers per task."""

from __future__ import annotations

from typing import Any

import pytest

from relier.slo import read_history, read_history_sync
from relier.submit.client import Client
from tests.support.cli_desk import Desk, Run, RunJson


def ended(desk: Desk, done: int, dead: int = 0, **fields: Any) -> None:
    for _ in range(done):
        desk.done(**fields)
    for _ in range(dead):
        desk.dead(**fields)


def test_status_is_ok_while_the_target_is_met(desk: Desk, run: Run, run_json: RunJson) -> None:
    ended(desk, 3)
    lines = run("slo").stdout.splitlines()
    assert lines[0].split() == ["OBJECTIVE", "STATE", "TARGET", "5M", "1H", "6H", "3D", "LEFT"]
    assert lines[1].split() == ["all", "tasks:", "succeed", "ok", "99.9%", "0", "0", "0", "0", "100%"]
    assert max(map(len, lines)) <= 80
    (objective,) = run_json("slo", "status")["objectives"]
    assert objective["windows"]["3d"] == {"good": 3, "total": 3, "burn_rate": 0.0}
    assert (objective["state"], objective["alerts"], objective["budget_left"]) == ("ok", [], 1.0)


def test_status_works_without_tasks(desk: Desk, run: Run) -> None:
    _, row = run("slo", "status").stdout.splitlines()
    assert row.split()[3:] == ["no", "data", "99.9%", "-", "-", "-", "-"]


def test_an_alert_is_explained_and_fails(desk: Desk, run: Run, run_json: RunJson) -> None:
    ended(desk, 8, 2)
    found = run("slo", "status")
    assert found.exit_code == 1
    assert found.stdout.splitlines()[1].split()[3:] == ["page", "99.9%", "200", "200", "200", "200", "none"]
    assert (
        "page: all tasks: succeed: 2 of 10 did not do well in the last 1h, and 2 of 10 in the last 5m" in found.stdout
    )
    assert "rl slo report --window 1h" in found.stdout
    (objective,) = run_json("slo", "status", code=1)["objectives"]
    assert [alert["long"] for alert in objective["alerts"]] == ["1h", "6h", "3d"]


def test_objectives_come_from_the_settings(desk: Desk, run_json: RunJson, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "RELIER_SLO_OBJECTIVES",
        '[{"queue": "mail", "start_within": 30, "target": 0.5}, {"task": "shop.charge", "target": 0.5}]',
    )
    ended(desk, 1, queue="mail", name="shop.send")
    ended(desk, 1, 1)
    mail, charge = run_json("slo", "status")["objectives"]
    assert (mail["kind"], mail["within_ms"], mail["windows"]["5m"]["total"]) == ("start", 30_000, 1)
    assert (charge["state"], charge["windows"]["1h"]["burn_rate"]) == ("ok", 1.0)


def test_a_wrong_objective_is_a_usage_error(desk: Desk, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIER_SLO_OBJECTIVES", "[{]")
    found = run("slo", "status")
    assert found.exit_code == 2
    assert "RELIER_SLO_OBJECTIVES cannot be read" in found.stderr


def test_status_says_that_counting_is_off(desk: Desk, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIER_SLO", "off")
    assert "RELIER_SLO is off" in run("slo").stdout


def test_report_lists_tasks_the_busiest_first(desk: Desk, run: Run, run_json: RunJson) -> None:
    ended(desk, 1, queue="mail", name="shop.send")
    ended(desk, 3, 1)
    desk.cancelled()
    rows = run_json("slo", "report")["tasks"]
    assert [(row["name"], row["queue"], row["done"], row["dead"]) for row in rows] == [
        ("shop.charge", "default", 3, 1),
        ("shop.send", "mail", 1, 0),
    ]
    assert (rows[0]["success"], rows[0]["cancelled"], rows[0]["expired"]) == (0.75, 1, 0)
    assert rows[0]["run_ms"]["p50"] >= 1
    assert set(rows[0]["wait_ms"]) == {"p50", "p95", "p99"}
    lines = run("slo", "report").stdout.splitlines()
    assert lines[1].split()[:6] == ["shop.charge", "default", "3", "1", "0", "75.00%"]


def test_report_filters_and_cuts(desk: Desk, run: Run, run_json: RunJson) -> None:
    ended(desk, 1, queue="mail", name="shop.send")
    ended(desk, 2)
    assert [row["name"] for row in run_json("slo", "report", "--queue", "mail")["tasks"]] == ["shop.send"]
    assert [row["queue"] for row in run_json("slo", "report", "--name", "shop.charge")["tasks"]] == ["default"]
    assert run_json("slo", "report", "--limit", "1")["more"] == 1
    assert "1 more row; list them with --limit" in run("slo", "report", "--limit", "1").stdout
    assert "Nothing was counted in the last 5m" in run("slo", "report", "--window", "5m", "--name", "x").stdout


def test_a_history_is_read_in_two_calls(desk: Desk) -> None:
    ended(desk, 2)
    calls: list[str] = []

    def counting(call: Any) -> Any:
        calls.append(call.script)
        return desk.run(call)

    history = read_history_sync(counting, desk.ledger)
    assert calls == ["outcomes", "outcomes"]
    assert history.last(5) == history.last(4320)


@pytest.mark.anyio
async def test_an_application_reads_the_same(desk: Desk) -> None:
    ended(desk, 2)
    client = Client(desk.settings)
    try:
        history = await read_history(client.arun, client.ledger)
    finally:
        await client.aclose()
    assert sum(n for series, n in history.last(5).items() if series.what == "done") == 2
