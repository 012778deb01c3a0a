"""The overview: latencies, error rate, burn rates, and everything that needs attention."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from relier.dashboard.figures.depths import DepthHistory
from relier.dashboard.figures.outcomes import FIELDS_AT_ONCE, OutcomeMemory, digest_of
from relier.ledger import keys
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.nodes import Role
from relier.slo import Objective, judge_all, objectives_of, read_history_sync
from tests.support.cli_desk import LEASE_MS, Desk


def overview(web: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = web.get("/api/overview").json()
    return found


def said(web: TestClient) -> str:
    return " ".join(entry["says"] for entry in overview(web)["attention"])


def links(web: TestClient) -> dict[str, str]:
    return {entry["says"]: entry["link"] for entry in overview(web)["attention"]}


def test_burn_rates_are_those_of_rl_slo(web: TestClient, desk: Desk) -> None:
    for _ in range(3):
        desk.done()
    desk.dead()
    judged = judge_all(objectives_of(desk.settings), read_history_sync(desk.run, desk.ledger))
    found = overview(web)
    assert [row["burn_rates"] for row in found["objectives"]] == [
        {name: window.burn_rate for name, window in each.windows.items()} for each in judged
    ]
    assert [(row["state"], row["budget_left"]) for row in found["objectives"]] == [("page", judged[0].budget_left)]
    assert (found["error_rate"], found["complete"]) == (0.25, True)
    assert found["throughput"] > 0
    for what in ("wait", "run"):
        times = found["latency_ms"][what]
        assert 0 < times["p50"] <= times["p95"] <= times["p99"]
    assert "Burn rate 1h" in web.get("/").text


def test_outcomes_of_other_minutes_are_read_once(web: TestClient, desk: Desk) -> None:
    desk.done()
    now_ms = overview(web)["now_ms"]
    key = keys.spell(desk.ledger.prefix, "outcomes", f"m{now_ms // 60_000 - 20}")
    desk.command("HSET", key, "done 3\ndefault\nshop.charge", 99)  # too late: that minute was over when it was read
    assert overview(web)["objectives"][0]["burn_rates"]["1h"] == 0
    assert sum(bar["done"] for bar in overview(web)["bars"]) == 0
    desk.command("HSET", keys.spell(desk.ledger.prefix, "meta"), "born", "another")
    assert sum(bar["done"] for bar in overview(web)["bars"]) == pytest.approx(99 / 60)


def test_many_outcomes_are_read_bit_by_bit(desk: Desk) -> None:
    """What one page reads is bounded. Windows that are not complete have no burn rate."""
    from relier.cli.pipelined.steps import read_all

    per_minute, minutes = 500, FIELDS_AT_ONCE // 500 + 40
    (now_ms,) = (desk.run(desk.ledger.stats(" ")).now_ms,)
    for back in range(1, minutes + 1):
        fields = [word for n in range(per_minute) for word in (f"done 3\nqueue{n}\nshop.task", 1)]
        desk.command("HSET", keys.spell(desk.ledger.prefix, "outcomes", f"m{now_ms // 60_000 - back}"), *fields)
    memory = OutcomeMemory((Objective(target=0.999),))
    (first,) = read_all(desk.store, desk.ledger, memory.reading(desk.ledger))
    (status,) = first.judged()
    assert (status.windows["30m"].burn_rate, status.windows["6h"].burn_rate, first.complete) == (0, None, False)
    (second,) = read_all(desk.store, desk.ledger, memory.reading(desk.ledger))
    assert second.complete
    assert second.judged()[0].windows["6h"].total == per_minute * minutes


def test_a_digest_counts_by_kind() -> None:
    flat = [
        b"done 3\nmail\nshop.send",
        b"5",
        b"dead -\nmail\nshop.send",
        b"1",
        b"wait 2\nmail\nshop.send",
        b"6",
        b"odd",
        b"1",
    ]
    found = digest_of(flat, [Objective(target=0.9), Objective(target=0.9, queue="other")])
    assert found.kept == ((5, 6), (0, 0))
    assert (dict(found.ended), dict(found.waits), dict(found.claimed)) == ({"done": 5, "dead": 1}, {2: 6}, {"mail": 6})


def test_rates_of_a_queue_come_from_claims_and_depths() -> None:
    history = DepthHistory()
    history.add(1_000_000, {"mail": 10})
    assert history.rates("mail", 1_002_000, 10, 2.0) == {"in_rate": None, "out_rate": 2.0}
    assert history.rates("mail", 1_010_000, 40, 2.0) == {"in_rate": 5.0, "out_rate": 2.0}
    assert history.rates("mail", 1_010_000, 0, 0.5) == {"in_rate": 0.0, "out_rate": 0.5}
    assert history.rates("mail", 1_010_000, 40, None) == {"in_rate": None, "out_rate": None}


# --- what needs attention ----------------------------------------------------------------------------------------


def test_growing_dead_letters_need_attention(web: TestClient, desk: Desk) -> None:
    desk.dead()
    assert "Dead letters grow: 1 task died in the last 5 minutes; there are 1 in all." in said(web)


def test_a_missed_objective_needs_attention(web: TestClient, desk: Desk) -> None:
    desk.dead()
    assert "Objective 'all tasks: succeed' is missed: 1 of 1 did not do well in the last 1h" in said(web)


def test_full_limits_need_attention(web: TestClient, desk: Desk) -> None:
    limits = (RunLimit("tenant:{id}", "tenant:1", LimitNumbers(1)),)
    for _ in range(3):
        desk.push(limits=limits)
    desk.claim()
    (entry,) = [entry for entry in overview(web)["attention"] if entry["link"] == "/limits"]
    assert entry["says"] == "Full limits: tenant:1 (1 running, 2 wait)."


def test_paused_and_unserved_queues_need_attention(web: TestClient, desk: Desk) -> None:
    for n in range(8):
        desk.push(queue=f"mail{n}")
    desk.run(desk.ledger.pause("default", 0))
    desk.push()
    found = overview(web)["attention"]
    assert sum("no worker serves it" in entry["says"] for entry in found) == 5, "a page does not list thousands"
    assert "4 more warnings about queues." in [entry["says"] for entry in found]
    assert {entry["link"] for entry in found} == {"/queues"}


def test_a_store_near_its_memory_needs_attention(web: TestClient, desk: Desk) -> None:
    desk.push()
    used = int(desk.command("INFO", "memory").split(b"used_memory:")[1].split()[0])
    desk.command("CONFIG", "SET", "maxmemory", int(used * 1.04))
    try:
        assert "The store uses" in said(web)
    finally:
        desk.command("CONFIG", "SET", "maxmemory", "0")


def test_a_worker_whose_clock_is_ahead_needs_attention(web: TestClient, desk: Desk) -> None:
    now_ms = desk.run(desk.ledger.stats(" ")).now_ms
    desk.run(desk.ledger.beat(desk.boot, LEASE_MS, polled=str(now_ms + 60_000)))
    assert f"The clock of worker {desk.boot}" in said(web)


def relay(desk: Desk, lease_ms: int = LEASE_MS, **report: Any) -> str:
    """Register a relay that reports one table."""
    desk.run(desk.ledger.register("relay.7.x", lease_ms, json.dumps({"host": "db1", "kinds": ["ledger"]}), Role.RELAY))
    table = {"database": "", "table": "relier_outbox", "state": "answers", "waiting": 0, "exact": True, "dead_rows": 0}
    table |= {"oldest_age_ms": 0, "lag_ms": 5, "breakers": {"ledger": "closed"}}
    given = {"published": 12, "failed": 0, "dead": 0, "deferred": 0, "outages": 0, "outbox": [table | report]}
    desk.run(desk.ledger.beat("relay.7.x", lease_ms, report=json.dumps(given)))
    return "relay.7.x"


@pytest.mark.parametrize(
    ("report", "says"),
    [
        ({"waiting": 41, "oldest_age_ms": 120_000}, "41 rows wait, the oldest for 2 min"),
        ({"state": "away"}, "the database is unreachable"),
        ({"breakers": {"celery": "open"}}, "the target of celery rows does not answer"),
        ({"dead_rows": 3}, "3 dead rows"),
    ],
)
def test_an_outbox_in_trouble_needs_attention(web: TestClient, desk: Desk, report: dict[str, Any], says: str) -> None:
    relay(desk)
    assert "Outbox" not in said(web)
    relay(desk, **report)
    (entry,) = [entry for entry in overview(web)["attention"] if entry["link"] == "/outbox"]
    assert says in entry["says"]


def test_the_outbox_page_shows_what_relays_report(web: TestClient, desk: Desk) -> None:
    relay(desk, waiting=41, oldest_age_ms=120_000, dead_rows=3)
    found = web.get("/api/outbox").json()
    assert [(row["table"], row["waiting"], row["dead_rows"]) for row in found["tables"]] == [("relier_outbox", 41, 3)]
    assert [(row["id"], row["published"]) for row in found["relays"]] == [("relay.7.x", 12)]
    text = html.unescape(web.get("/outbox").text)
    assert "2 min" in text
    assert "relay.7.x" in text


@pytest.mark.parametrize("odd", [None, 7, [], {}, "x", [7], [{"table": ["x"], "breakers": 7, "waiting": "many"}]])
def test_a_report_of_another_release_breaks_no_page(web: TestClient, desk: Desk, odd: Any) -> None:
    relay(desk)
    desk.run(desk.ledger.beat("relay.7.x", LEASE_MS, report=json.dumps({"published": "many", "outbox": odd})))
    for path in ("/", "/outbox"):
        assert web.get(path).status_code == 200
