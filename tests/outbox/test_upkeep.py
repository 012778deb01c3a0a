"""Rows that no relay claims are reported. Dead rows are deleted after their retention."""

from __future__ import annotations

import json
import logging

import pytest
from click.testing import CliRunner, Result

from relier.cli.main import rl
from relier.outbox.publish.target import SENT, SendFailed
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.relay.membership import Membership
from relier.outbox.relay.metrics import reported
from relier.outbox.relay.upkeep import EVERY_S, REPEAT_S
from relier.outbox.row import NewRow
from tests.support.outbox_shop import Scripted, Shop

HOUR_MS = 3_600_000
LEFT = NewRow("left", "celery", "shop.mail", "mails", "", b"x")


def leave_rows(shop: Shop) -> None:
    """Insert Celery rows that no relay has claimed for an hour."""
    shop.write(LEFT, LEFT)
    shop.change(created_at=shop.outbox.table.c.created_at - HOUR_MS)


def run(shop: Shop, *args: str) -> Result:
    settings = shop.client.settings
    options = ["--url", settings.redis_url, "--namespace", settings.namespace]
    return CliRunner().invoke(rl, [*options, *args])


def url_of(shop: Shop) -> str:
    return shop.engine.url.render_as_string(hide_password=False)


def test_a_relay_logs_which_rows_it_leaves(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    leave_rows(shop)
    now = [0.0]
    relay = shop.relay(Scripted(SENT), idle_time=0.001, clock=lambda: now[0])
    told = "rows that this relay does not claim: rows=2 kind=celery table=relier_outbox oldest=36"
    for passed, times in ((0.0, 1), (1.0, 1), (EVERY_S, 1), (REPEAT_S, 2)):
        now[0] += passed
        relay.turn(ClaimedBatch(relay.relay_id))
        found = [one for one in caplog.messages if one.startswith(told)]
        assert len(found) == times
        assert found[0].endswith("s; start a relay with --celery-app")


def test_young_rows_are_not_reported(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "relier.outbox")
    shop.write(LEFT)
    relay = shop.relay(Scripted(SENT), idle_time=0.001)
    relay.turn(ClaimedBatch(relay.relay_id))
    assert caplog.messages == []


def test_stats_and_doctor_report_rows_that_no_relay_takes(shop: Shop) -> None:
    shop.client.open()
    leave_rows(shop)
    shop.place(1)
    told = run(shop, "outbox", "stats", "--database", url_of(shop)).output
    assert "No relay for: 2 celery rows, the oldest for 1 h: start a relay with --celery-app." in told
    numbers = json.loads(run(shop, "outbox", "stats", "--json", "--database", url_of(shop)).output)
    assert {one["kind"]: one["rows"] for one in numbers["kinds"]} == {"celery": 2, "ledger": 1}
    assert [one["kind"] for one in numbers["not_taken"]] == ["celery"]
    found = json.loads(run(shop, "doctor", "--json", "--database", url_of(shop)).output)["checks"]
    (verdict,) = (one for one in found if one["check"] == "outbox" and one["level"] == "warn")
    assert "2 celery rows wait, the oldest for 1 h, and no relay sends them" in verdict["says"]
    assert "--celery-app" in verdict["advice"]


def test_rows_that_another_live_relay_takes_are_not_reported(shop: Shop) -> None:
    leave_rows(shop)
    about = {"table": "relier_outbox", "kinds": ["ledger", "celery"]}
    member = Membership(shop.client.settings, shop.client.scripts, lambda: dict(about))
    member.begin()
    try:
        assert "No relay for" not in run(shop, "outbox", "stats", "--database", url_of(shop)).output
    finally:
        member.end()


def test_the_doctor_does_not_mention_an_outbox_that_does_not_exist(shop: Shop) -> None:
    found = json.loads(run(shop, "doctor", "--json").output)["checks"]
    assert not [one for one in found if one["check"] == "outbox"]
    missing = run(shop, "doctor", "--json", "--database", url_of(shop), "--table", "not_there")
    (verdict,) = (one for one in json.loads(missing.output)["checks"] if one["check"] == "outbox")
    assert verdict["level"] == "bad"
    assert "not_there" in verdict["says"]


def test_dead_rows_are_removed_after_their_retention(shop: Shop) -> None:
    shop.place(1, 2)
    shop.relay(Scripted(SendFailed(ValueError("poison"), final=True))).drain()
    kept = shop.relay(Scripted(SENT), idle_time=0.001)
    kept.turn(ClaimedBatch(kept.relay_id))
    assert shop.count() == 2
    shop.change(died_at=shop.outbox.table.c.died_at - 2 * HOUR_MS)
    shop.place(3)
    relay = shop.relay(Scripted(SendFailed(ValueError("poison"), final=True)), dead_retention=3600.0, idle_time=0.001)
    relay.drain()
    relay.turn(ClaimedBatch(relay.relay_id))
    (left,) = shop.rows()
    assert left.dead == 1


def test_a_relay_reports_its_table_with_each_heartbeat(shop: Shop) -> None:
    """The dashboard shows it. Counts are made in the relay's own turn, not while a heartbeat waits for them."""
    now = [0.0]
    relay = shop.relay(Scripted(SENT), idle_time=0.001, clock=lambda: now[0])
    (before,) = reported([relay])["outbox"]
    assert (before["table"], before["waiting"], before["state"]) == ("relier_outbox", None, "answers")
    leave_rows(shop)
    now[0] += 60
    relay.turn(ClaimedBatch(relay.relay_id))
    (after,) = reported([relay])["outbox"]
    assert (after["waiting"], after["exact"], after["dead_rows"]) == (2, True, 0)
    assert 3_000_000 < after["oldest_age_ms"] < 4_000_000
    assert after["breakers"] == {"ledger": "closed"}
    json.dumps(reported([relay]))
