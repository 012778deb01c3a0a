"""rl events: recent changes, filtered, in 80 columns, and changes that happen while the command follows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from relier.cli.commands.events import as_line
from relier.ledger.events.records import Event, Missed
from relier.ledger.events.writing import EventWriting
from relier.ledger.ledger import load_scripts
from relier.settings import Settings
from relier.store import SyncStore
from tests.support.cli_desk import Desk, Run, RunJson
from tests.support.servers import wait_until
from tests.support.terminals import in_terminal, unstyled

LONG_NAME = "shop.billing.invoices.send_monthly_invoice_to_every_customer"


@pytest.fixture
def told(settings: Settings, desk: Desk) -> Iterator[Desk]:
    """The desk, with scripts that always write events."""
    with SyncStore(settings, load_scripts(EventWriting("always"))) as store:
        desk.store = store
        yield desk


def test_the_last_events_are_shown(told: Desk, run: Run) -> None:
    lease = told.start(name="shop.charge", queue="mail")
    told.run(told.ledger.bury(lease, "CardDeclined", "{}"))
    lines = run("events").stdout.splitlines()
    assert [line.split()[1:3] for line in lines] == [[kind, lease.task_id] for kind in ("queued", "running", "dead")]
    assert "shop.charge attempt 1 on" in lines[2]
    assert "(CardDeclined)" in lines[2]


def test_events_can_be_filtered(told: Desk, run_json: RunJson) -> None:
    mail, other = told.start(name="shop.mail", queue="mail"), told.start(name="shop.charge")
    told.run(told.ledger.pause("mail", 0))

    def ids(*options: str) -> set[str]:
        return {event["id"] for event in run_json("events", *options)["events"]}

    assert ids() == {mail.task_id, other.task_id, "mail"}
    assert ids("--name", "*.mail") == {mail.task_id}
    assert ids("--queue", "mail") == {mail.task_id, "mail"}
    assert ids("--id", other.task_id[:20]) == {other.task_id}
    assert ids("--topic", "cluster") == {"mail"}
    assert len(run_json("events", "--limit", "2")["events"]) == 2


def test_a_cursor_continues(told: Desk, run_json: RunJson) -> None:
    told.start()
    first, *rest = run_json("events")["events"]
    assert run_json("events", "--since", first["cursor"])["events"] == rest


def test_no_event_carries_a_payload(told: Desk, run: Run) -> None:
    lease = told.start(payload=b'[["4111 1111 1111 1111"],{}]')
    told.run(told.ledger.commit([(lease, b'"4111 1111 1111 1111"', ())]))
    assert "4111" not in run("events", "--json").stdout


def test_reading_leaves_no_mark_and_says_why_there_is_nothing(desk: Desk, run: Run) -> None:
    assert "written while somebody follows them" in run("events").stdout
    assert desk.command("EXISTS", desk.key("watched")) == 0


@pytest.mark.parametrize("words", [("--since", "yesterday"), ("--topic", "weather")])
def test_wrong_options_are_refused(desk: Desk, run: Run, words: tuple[str, str]) -> None:
    assert run("events", *words).exit_code == 2


def test_no_line_is_longer_than_the_terminal(told: Desk, settings: Settings) -> None:
    told.run(told.ledger.bury(told.start(name=LONG_NAME, queue="a-queue-with-a-long-name"), "AVeryLongReason", "{}"))
    screen = unstyled(in_terminal(["events", "--url", settings.redis_url, "--namespace", settings.namespace]))
    assert len(screen.splitlines()) == 3
    assert [line for line in screen.splitlines() if len(line) > 80] == []


def test_a_gap_is_one_line() -> None:
    some = as_line(Missed(topic="tasks", why="trimmed", count=7, cursor=""), 0, 80)
    assert " ".join(some.split()) == "missed 7 events of tasks (trimmed): look at the state, then read on"
    event = Event(topic="cluster", kind="lost", id="web1.42.abc", move="revive", at_us=0, number=1, cursor="")
    assert as_line(event, 0, None).endswith("lost       web1.42.abc  worker")


def test_following_shows_new_events(desk: Desk, settings: Settings) -> None:
    """The desk writes events only while somebody reads them, as processes do by default."""
    words = ["events", "--follow", "--json", "--url", settings.redis_url, "--namespace", settings.namespace]
    command = [sys.executable, "-m", "relier.cli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy()) as following:
        try:
            wait_until(lambda: desk.command("EXISTS", desk.key("watched")) == 1, 30, "the mark of the reader")
            task = desk.push()
            assert following.stdout is not None
            assert json.loads(following.stdout.readline())["id"] == task
        finally:
            following.terminate()


def test_the_audit_accepts_the_keys_of_events(told: Desk, run_json: RunJson) -> None:
    told.run(told.ledger.watch())
    told.run(told.ledger.commit([(told.start(), None, ())]))
    report = run_json("audit")
    assert {"events", "event_numbers", "watched"} <= report["keys"].keys()
    assert report["findings"] == []
