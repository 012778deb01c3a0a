"""rl outbox: the relay as a process, and the commands for dead rows."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import MetaData, text

from relier.cli.main import rl
from relier.cli.outbox_database import understood
from relier.outbox.publish.target import SendFailed
from relier.outbox.relay.relay import Relay
from relier.outbox.sqlalchemy.engines import EngineDatabase
from relier.outbox.sqlalchemy.tables import inbox_table
from relier.settings import environment
from relier.states import State
from tests.support.outbox_shop import Scripted, Shop, receipt
from tests.support.servers import free_port, wait_until


def run(shop: Shop, *args: str, **how: Any) -> Result:
    settings = shop.client.settings
    options = ["--url", settings.redis_url, "--namespace", settings.namespace]
    where = ["--database", shop.engine.url.render_as_string(hide_password=False)]
    result = CliRunner().invoke(rl, [*options, "outbox", *args, *where], **how)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def bury(shop: Shop, *orders: int) -> list[str]:
    ids = shop.place(*orders)
    shop.relay(Scripted(SendFailed(ValueError("poison"))), max_retries=0).drain()
    return ids


def test_stats_show_waiting_rows_dead_rows_and_relays(shop: Shop) -> None:
    shop.client.open()
    bury(shop, 1)
    shop.place(2, 3)
    told = run(shop, "stats").output
    assert "Waiting: 2, the oldest for" in told
    assert "Dead: 1." in told
    assert "none; start one" in told
    numbers = json.loads(run(shop, "stats", "--json").output)
    assert (numbers["waiting"], numbers["exact"], numbers["dead"], numbers["relays"]) == (2, True, 1, [])
    assert 0 <= numbers["oldest_age_ms"] < 60_000


@pytest.mark.slow
def test_stats_show_rows_while_the_store_is_unreachable(pg_shop: Shop) -> None:
    pg_shop.place(1, 2)
    where = pg_shop.engine.url.render_as_string(hide_password=False)
    away = ["--url", f"redis://127.0.0.1:{free_port()}", "outbox", "stats", "--database", where]
    told = CliRunner().invoke(rl, away)
    assert told.exit_code == 0
    assert "Waiting: 2" in told.output
    assert "Relays: unknown" in told.output
    assert json.loads(CliRunner().invoke(rl, [*away, "--json"]).output)["relays"] is None


def test_dead_rows_are_listed_replayed_and_purged(shop: Shop) -> None:
    first, second, third = bury(shop, 1, 2, 3)
    listed = run(shop, "dead")
    assert "ValueError: poison" in listed.output
    assert "3 of 3 dead rows." in listed.output
    assert json.loads(run(shop, "dead", first, "--json").output)["rows"][0]["task_id"] == first
    assert "No dead rows." in run(shop, "dead", "--name", "other").output
    refused = run(shop, "replay")
    assert refused.exit_code == 2
    assert "no rows selected" in refused.output
    assert "1 dead row would be replayed." in run(shop, "replay", first, "--dry-run").output
    assert "1 dead row replayed." in run(shop, "replay", first, input="y\n").output
    assert shop.relay().drain() == 1
    assert shop.state(first) is State.QUEUED
    for command in (["dead"], ["purge", "--yes"], ["replay", "--yes"]):
        absent = run(shop, *command, "absent")
        assert absent.exit_code == 1
        assert absent.stderr == "rl: no dead row absent\n"
    assert json.loads(run(shop, "purge", second, "--json").output) == {"matched": 1, "done": 1, "dry_run": False}
    assert "0 dead rows deleted" in run(shop, "purge", "--older-than", "7d", "--yes").output
    assert "1 dead row deleted" in run(shop, "purge", "--all", "--yes").output
    assert shop.count() == 0
    assert third


def test_the_beginning_of_an_id_is_enough(shop: Shop) -> None:
    first, second = bury(shop, 1, 2)
    assert json.loads(run(shop, "dead", first[:-4], "--json").output)["rows"][0]["task_id"] == first
    ambiguous = run(shop, "purge", first[:4], "--yes")
    assert ambiguous.exit_code == 1
    assert f"2 dead rows begin with {first[:4]!r}; give more characters of the id:" in ambiguous.stderr
    assert first in ambiguous.stderr
    assert "1 dead row replayed." in run(shop, "replay", second[:-4], "--yes").output
    assert shop.count() == 2


@pytest.mark.parametrize(
    ("given", "understood_as"),
    [
        ("postgres://ann:x@db/shop", "postgresql+psycopg://ann:x@db/shop"),
        ("postgresql://db/shop?sslmode=require", "postgresql+psycopg://db/shop?sslmode=require"),
        ("postgres+asyncpg://db/shop", "postgresql+asyncpg://db/shop"),
        ("postgresql+psycopg://db/shop", "postgresql+psycopg://db/shop"),
        ("mysql://db/shop", "mysql+pymysql://db/shop"),
        ("sqlite:///shop.db", "sqlite:///shop.db"),
        ("nonsense", "nonsense"),
    ],
)
def test_urls_of_hosting_providers_are_understood(
    given: str, understood_as: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "MySQLdb", raising=False)  # PyMySQL under this name, for Django's tests
    assert understood(given) == understood_as


def test_the_url_of_a_hosting_provider_works(pg_shop: Shop) -> None:
    pg_shop.place(1)
    url = pg_shop.engine.url.render_as_string(hide_password=False)
    short = url.replace("postgresql+psycopg://", "postgres://")
    assert short != url
    told = CliRunner().invoke(rl, ["outbox", "stats", "--json"], env={"RELIER_OUTBOX_DATABASE_URL": short})
    assert json.loads(told.stdout)["waiting"] == 1


def test_ages_and_databases_that_cannot_be_understood(pg_shop: Shop) -> None:
    assert "an age must be a number" in run(pg_shop, "purge", "--older-than", "week").output
    told = CliRunner().invoke(rl, ["outbox", "stats", "--database", "nonsense"])
    assert told.exit_code == 2
    assert "--database cannot be used" in told.output
    missing = run(pg_shop, "stats", "--table", "not_there")
    assert missing.exit_code == 3
    assert "not_there" in missing.output
    assert "Traceback" not in missing.output
    url = pg_shop.engine.url
    shown = f"postgresql+psycopg://***@{url.host}:{url.port}/{url.database}"
    assert f'the database {shown} refused: relation "not_there" does not exist; check that ' in missing.output
    assert "--table names another" in missing.output
    away = CliRunner().invoke(rl, ["outbox", "stats", "--database", f"postgresql+psycopg://127.0.0.1:{free_port()}/x"])
    assert away.exit_code == 3
    assert "check that it runs and that --database or RELIER_OUTBOX_DATABASE_URL is correct" in away.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--database", "postgresql+psycopg://u:secret@host:port/x"], "the port in the database URL is not a number"),
        ([], "Missing option '--database' (env var: 'RELIER_OUTBOX_DATABASE_URL')"),
        (
            ["--database", "sqlite://"],
            "the database sqlite:// refused the relay: no such table: relier_outbox; check that this is",
        ),
        (["--metrics-port", "{taken}", "--database", "{shop}"], "metrics cannot be served on port {taken}: Address"),
    ],
)
def test_a_relay_that_cannot_work_says_why_and_ends(shop: Shop, options: list[str], says: str) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        names = {"taken": taken.getsockname()[1], "shop": shop.engine.url.render_as_string(hide_password=False)}
        told = CliRunner().invoke(rl, ["outbox", "relay", *(option.format(**names) for option in options)])
    assert told.exit_code == 2, told.output
    assert says.format(**names) in told.stderr
    assert "secret" not in told.stderr


def test_forgetting_marks_needs_a_confirmation(shop: Shop) -> None:
    inbox_table(metadata := MetaData())
    metadata.create_all(shop.engine)
    with shop.engine.begin() as connection:
        connection.execute(text("INSERT INTO relier_inbox (task_id, revision, created_at) VALUES ('a', 1, 0)"))
    asked = run(shop, "forget", "--older-than", "1s", input="n\n")
    assert asked.exit_code == 1
    assert "Permanently delete 1 mark?" in asked.output
    assert "dead letters are kept for 30 d" in asked.stderr
    sure = run(shop, "forget", "--older-than", "90d", "--yes")
    assert (sure.stdout, sure.stderr) == ("1 mark deleted.\n", "")


def test_everything_shown_passes_through_the_redaction_hook(pg_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIER_REDACT", "operator:truediv")  # any function of two: it hides, by raising
    bury(pg_shop, 1)
    told = run(pg_shop, "dead").output
    assert "poison" not in told
    assert "hidden" in told


def test_a_relay_stores_and_logs_redacted_errors(pg_shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    pg_shop.place(1, 2)
    target = Scripted(SendFailed(ValueError("poison"), final=True), SendFailed(ValueError("poison")))
    relay = Relay(EngineDatabase(pg_shop.engine), [target], show=lambda name, text: f"{name}: {len(text)} letters")
    relay.drain()
    assert all(row.error.startswith("shop.receipt: ") for row in pg_shop.rows())
    assert "poison" not in caplog.text
    relay.close()


def test_a_relay_process_sends_rows_until_it_is_stopped(shop: Shop, tmp_path: Path) -> None:
    shop.client.open()
    ids = shop.place(*range(1, 251))
    sign, port = tmp_path / "alive", free_port()
    command = [sys.executable, "-m", "relier.cli", "outbox", "relay", "--liveness-file", str(sign)]
    command += ["--database", shop.engine.url.render_as_string(hide_password=False), "--metrics-port", str(port)]
    environ = {**os.environ, **environment(shop.client.settings)}
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: shop.count() == 0, 30)
            assert shop.accepted() == 250
            assert sign.exists()
            page = scrape(port)
            assert "\nrl_outbox_published_total 250.0" in page
            assert "\nrelier_outbox_published_total 250.0" in page, "the former name, for one release"
            stats = json.loads(run(shop, "stats", "--json").output)
            assert len(stats["relays"]) == 1
        finally:
            process.send_signal(signal.SIGTERM)
            told = process.communicate(timeout=30)[1]
    assert process.returncode == 0, told
    assert "stopped: published=250" in told
    assert shop.state(ids[0]) is State.QUEUED
    assert json.loads(run(shop, "stats", "--json").output)["relays"] == []


IGNORING = """
import os, signal, sys
signal.signal(int(sys.argv[1]), signal.SIG_IGN)
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_an_ignored_sigint_stays_ignored_and_sigterm_works(shop: Shop, ignored: signal.Signals) -> None:
    """SIGINT stays ignored, as for commands that a script starts with `&`. SIGTERM always works."""
    shop.client.open()
    command = [sys.executable, "-c", IGNORING, str(int(ignored)), sys.executable, "-m", "relier.cli", "outbox", "relay"]
    command += ["--database", shop.engine.url.render_as_string(hide_password=False)]
    environ = {**os.environ, **environment(shop.client.settings)}
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            shop.place(1)
            wait_until(lambda: shop.count() == 0, 30)
            if ignored is signal.SIGINT:
                process.send_signal(signal.SIGINT)
                shop.place(2)
                wait_until(lambda: shop.count() == 0, 30)
                assert process.poll() is None
        finally:
            process.send_signal(signal.SIGTERM)
            told = process.communicate(timeout=30)[1]
    assert process.returncode == 0, told


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(
    "given", [["", "other"], ["--queue", "default", "--name", ""], ["--name", "x", "--older-than", ""]]
)
def test_an_empty_id_or_filter_selects_nothing(shop: Shop, given: list[str]) -> None:
    """Such as a variable of the shell that is not set: without it, all dead rows would match."""
    shop.client.open()
    bury(shop, 1, 2)
    for command in ("purge", "replay", "dead"):
        told = run(shop, command, *given, *([] if command == "dead" else ["--yes"]))
        assert told.exit_code == 2, told.output
        assert "it is empty" in told.stderr
    assert [row.dead for row in shop.rows()] == [1, 1]


def test_a_whole_id_is_not_taken_for_the_beginning_of_another(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even if there are so many dead rows that not all are searched for beginnings."""
    shop.client.open()
    with shop.session() as session, session.begin():
        for task_id in ("order-12", "order-1"):
            shop.outbox.add(session, receipt.with_options(task_id=task_id), 1)
    shop.change(dead=1)
    monkeypatch.setattr("relier.cli.commands.outbox.rows.SEARCHED", 1)
    assert run(shop, "purge", "order-1", "--yes").exit_code == 0
    assert [row.task_id for row in shop.rows()] == ["order-12"]
