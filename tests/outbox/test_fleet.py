"""One relay process for several databases, tables and schemas. One relay that fails does not stop the others."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from django.conf import settings
from django.core.management import CommandError, call_command, load_command_class
from django.db import connections, transaction
from sqlalchemy import MetaData, create_engine, event, func, select, text
from sqlalchemy.schema import CreateSchema

from relier import Client
from relier.cli.commands.outbox.relay import relay as relay_command
from relier.cli.main import rl
from relier.django.database import DjangoDatabase, notice_connector
from relier.outbox.publish.target import Sent
from relier.outbox.push import forget_outbox
from relier.outbox.relay import database_health
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.relay.database_health import DatabaseState
from relier.outbox.relay.fleet import Fleet, RelayTable
from relier.outbox.relay.metrics import RelayCollector
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.relay import Relay
from relier.outbox.sqlalchemy.engines import EngineDatabase, database_of
from relier.outbox.sqlalchemy.outbox import Outbox
from relier.settings import environment
from tests.support import django_shop
from tests.support.databases import USER, Database, MariaDB, SQLite
from tests.support.django_shop import DjangoShop, entry_of
from tests.support.outbox_shop import Shop, Takes, receipt
from tests.support.probing import reasons
from tests.support.servers import free_port, wait_until


@contextmanager
def relays(client: Client, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "relier.cli", "outbox", "relay", "--idle-time", "0.2", *options]
    environ = {**os.environ, **environment(client.settings)}
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def end(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=30)[1]
    assert process.returncode == 0, told
    return told


@pytest.mark.parametrize("driver", ["url", "async_url"])
def test_several_databases_of_which_one_is_down(tmp_path: Path, client: Client, driver: str) -> None:
    client.open()
    files, port = SQLite(tmp_path), free_port()
    first, second, missing = files.fresh(), files.fresh(), files.fresh()
    databases = [arg for one in (missing, first, second) for arg in ("--database", getattr(one, driver))]
    named = {one.name: getattr(one, driver) for one in (first, second, missing)}
    with Shop(first.url, client) as one, Shop(second.url, client) as two:
        sign = tmp_path / "alive"
        more = ["--metrics-port", str(port), "--liveness-file", str(sign)]
        with relays(client, *databases, *more) as process:
            ids = [*one.place(1, 2), *two.place(3)]
            wait_until(lambda: one.count() + two.count() == 0, 30)
            assert all(one.state(task).name == "QUEUED" for task in ids)
            assert len(json.loads(stats(first, client))["relays"]) == 1  # one member, however many tables
            shown = scrape(port)
            assert f'relier_outbox_published_total{{database="{named[first.name]}",table="relier_outbox"}} 2.0' in shown
            assert (
                f'relier_outbox_published_total{{database="{named[second.name]}",table="relier_outbox"}} 1.0' in shown
            )
            assert (
                f'relier_outbox_database_state{{database="{named[missing.name]}",table="relier_outbox"}} 2.0' in shown
            )
            assert sign.exists()
            assert reasons(port) == reasons(port, "/livez") == [], "two of three relays send rows"
            Shop(missing.url, client).__exit__()  # its table is there now
            told = end(process)
    assert f"({named[missing.name]}, table relier_outbox) refuses this relay" in told
    assert "stopped: published=3" in told


def stats(database: Database, client: Client) -> str:
    settings = client.settings
    options = ["--url", settings.redis_url, "--namespace", settings.namespace]
    return CliRunner().invoke(rl, [*options, "outbox", "stats", "--json", "--database", database.url]).output


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_one_process_serves_the_schemas_of_several_tenants(postgres: Database, client: Client) -> None:
    client.open()
    engine = create_engine(postgres.url)
    tenants = {}
    for tenant in ("red", "blue"):
        metadata = MetaData(schema=tenant)
        tenants[tenant] = Outbox(metadata, wake=False)
        with engine.begin() as connection:
            connection.execute(CreateSchema(tenant))
            metadata.create_all(connection)
    schemas = [arg for tenant in tenants for arg in ("--schema", tenant)]

    def count() -> int:
        with engine.begin() as connection:
            tables = [outbox.table for outbox in tenants.values()]
            return sum(connection.execute(select(func.count()).select_from(table)).scalar_one() for table in tables)

    with relays(client, "--database", postgres.url, *schemas) as process:
        for tenant, outbox in tenants.items():
            with engine.begin() as connection:
                outbox.add(connection, receipt, len(tenant))
        wait_until(lambda: count() == 0, 30)
        with engine.begin() as connection:
            name = {"name": postgres.name}
            used = connection.execute(
                text("SELECT count(*) FROM pg_stat_activity WHERE datname = :name AND pid <> pg_backend_pid()"), name
            ).scalar_one()
        assert used <= 2  # relays of one database share its connections
        told = end(process)
    assert "stopped: published=2" in told
    for outbox in tenants.values():
        forget_outbox(outbox)
    engine.dispose()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--table", "a.b", "--schema", "c"], "--table a.b already includes a schema"),
        (["--table", "a", "--table", "a"], "table a of sqlite:// is given twice"),
        (["--table", "a", "--table", "A"], "table A of sqlite:// is given twice"),
        (["--table", "a", "--table", "b"], "no such table: a"),
    ],
)
def test_tables_that_cannot_exist_are_refused(options: list[str], says: str) -> None:
    told = CliRunner().invoke(rl, ["outbox", "relay", "--database", "sqlite://", *options])
    assert told.exit_code == 2, told.output
    assert says in told.stderr


def test_a_table_given_with_and_without_its_schema_is_refused(shop: Shop, database: Database) -> None:
    schema = {"postgresql": "public", "mysql": database.name, "sqlite": "main"}[database.kind]
    tables = ["--table", "relier_outbox", "--table", f"{schema}.relier_outbox"]
    told = CliRunner().invoke(rl, ["outbox", "relay", "--database", database.url, *tables])
    assert told.exit_code == 2, told.output
    assert f"is given twice, as relier_outbox and as {schema}.relier_outbox" in told.stderr


class CaselessMariaDB(MariaDB):
    """As on Windows and macOS, and in images that set this for compatibility."""

    def command(self) -> list[str]:
        return [*super().command(), "--lower-case-table-names=1"]


@pytest.mark.databases
@pytest.mark.parametrize("names", [("relier_outbox", "Relier_Outbox"), ("relier_outbox", "shop.RELIER_OUTBOX")])
def test_a_table_that_is_given_in_two_cases(client: Client, names: tuple[str, str]) -> None:
    """Two relays of one process would send the same rows."""
    server = CaselessMariaDB()
    try:
        server.start().execute("CREATE DATABASE shop")
        url = server.database("shop").url
        with Shop(url, client):
            tables = [arg for name in names for arg in ("--table", name)]
            told = CliRunner().invoke(rl, ["outbox", "relay", "--database", url, *tables])
        assert told.exit_code == 2, told.output
        assert "is given twice" in told.stderr
    finally:
        server.end()


def test_databases_whose_urls_look_the_same_are_numbered(postgres: Database, client: Client) -> None:
    client.open()
    other = postgres.server.fresh()
    port = postgres.server.port
    urls = [
        f"postgresql+psycopg:///?dbname={name}&host=127.0.0.1&port={port}&user={USER}"
        for name in (postgres.name, other.name)
    ]
    with Shop(postgres.url, client) as one, Shop(other.url, client) as two:
        one.place(1)
        two.place(2)
        options = [arg for url in urls for arg in ("--database", url)]
        with relays(client, *options) as process:
            wait_until(lambda: one.count() + two.count() == 0, 30)
            told = end(process)
    other.give_back()
    hidden = "postgresql+psycopg:///?dbname=***&host=***&port=***&user=***"
    assert f"database={hidden}\n" in told
    assert f"database={hidden} (2)\n" in told


@pytest.fixture(params=["psycopg", "asyncpg"])
def silent(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    """A server that accepts connections and never answers: its URL, and the database of a relay."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"postgresql+{request.param}://somebody@127.0.0.1:{server.getsockname()[1]}/shop"
        database = database_of(url)
        yield url, database
        database.close()  # no caller waits for an answer here
    wait_until(lambda: "relier-asks" not in {thread.name for thread in threading.enumerate()}, 30)
    database.close()


def test_a_database_that_does_not_answer_at_the_start(
    shop: Shop, silent: tuple[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database_health, "SILENT_S", 0.1)
    url, database = silent
    places = [
        RelayTable(url, database, "relier_outbox"),
        RelayTable("answers", EngineDatabase(shop.engine), "relier_outbox"),
    ]
    fleet = Fleet(places, RelayOptions(), [Takes(Sent())], None)
    fleet.check()
    shop.place(1)
    assert fleet.relays[1].drain() == 1
    assert f"database ({url}, table relier_outbox) is unreachable: error=no answer for 0.1 s" in caplog.text


def test_a_database_that_no_longer_answers_is_unreachable(
    silent: tuple[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    connecting = threading.Event()
    database = silent[1]
    engine = getattr(database._engine, "sync_engine", database._engine)
    event.listen(engine, "do_connect", lambda *_: connecting.set())
    relay = Relay(database, [Takes(Sent())], clock=lambda: now)
    turn = [ClaimedBatch(relay.relay_id)]
    threading.Thread(target=relay.turn, args=turn, name="relier-asks", daemon=True).start()
    assert connecting.wait(30)
    now += database_health.SILENT_S
    (state,) = (one for one in RelayCollector(relay).collect() if one.name == "relier_outbox_database_state")
    assert [sample.value for sample in state.samples] == [DatabaseState.AWAY]
    assert "database is unreachable: error=no answer for" in caplog.text


# --- Django ----------------------------------------------------------------------------------------------------------


def test_djangos_command_has_all_options_of_rl() -> None:
    parser = load_command_class("relier.django", "relier_relay").create_parser("manage.py", "relier_relay")
    theirs = {flag for action in parser._actions for flag in action.option_strings}
    ours = {flag for option in relay_command.params if isinstance(option, click.Option) for flag in option.opts}
    assert ours - theirs == {"--url", "--namespace"}  # Django's come from the environment
    assert "--queue-snapshot-refresh-seconds" in theirs


def test_one_process_sends_the_rows_of_several_aliases(tmp_path: Path, client: Client) -> None:
    files = SQLite(tmp_path)
    urls = {"default": files.fresh().url, "second": files.fresh().url}
    with DjangoShop(client, **urls) as shop:
        shop.make_tables()
        for alias in urls:
            with transaction.atomic(using=alias):
                receipt.push_in(alias, 1)
        call_command_until_sent(shop, *urls)


def call_command_until_sent(shop: DjangoShop, *aliases: str) -> None:
    said = io.StringIO()

    def stop_when_sent() -> None:
        wait_until(lambda: shop.client.run(shop.client.ledger.stats()).counts.get("submitted", 0) == len(aliases), 30)
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=stop_when_sent)
    watcher.start()
    options = [arg for alias in aliases for arg in ("--database", alias)]
    call_command("relier_relay", *options, "--queue-snapshot-refresh-seconds", "5", stdout=said)
    watcher.join()
    assert all(shop.ids(alias) == [] for alias in aliases)
    assert f"Relay stopped: {len(aliases)} sent" in said.getvalue()


def test_djangos_commits_wake_relays_that_listen(
    postgres: Database, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "RELIER_OUTBOX_NOTIFY", True, raising=False)
    with DjangoShop(client, default=postgres.url) as shop:
        shop.make_tables()
        with notice_connector("default")() as listening:
            listening.execute("LISTEN relier_outbox")
            with transaction.atomic():
                receipt.push_in("default", 1)
            assert len(list(listening.notifies(timeout=30, stop_after=1))) == 1


@pytest.fixture
def pooled(postgres: Database, client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[DjangoShop]:
    """A project whose pool has one connection."""
    pool = {"OPTIONS": {"pool": {"min_size": 1, "max_size": 1, "timeout": 5}}}
    monkeypatch.setattr(django_shop, "entry_of", lambda url: {**entry_of(url), **pool})
    with DjangoShop(client, default=postgres.url) as shop:
        yield shop.make_tables()
        connections["default"].close_pool()


def test_relays_of_one_process_take_turns_with_a_pool(pooled: DjangoShop) -> None:
    connections["default"].close()
    both_have_asked = threading.Barrier(2)

    def ask() -> None:
        with DjangoDatabase("default").begin() as tx:
            tx.run("SELECT 1", {})
        both_have_asked.wait(30)

    with ThreadPoolExecutor(2) as threads:
        for one in [threads.submit(ask) for _ in range(2)]:
            one.result()


def test_listening_takes_no_connection_of_a_pool(pooled: DjangoShop) -> None:
    with notice_connector("default")():
        assert pooled.ids() == []
    assert pooled.ids() == []


def test_listening_needs_postgresql(sqlite: Database, client: Client) -> None:
    with DjangoShop(client, default=sqlite.url) as shop:
        shop.make_tables()
        with pytest.raises(CommandError, match="--listen is for PostgreSQL, not for SQLite"):
            call_command("relier_relay", "--listen")


def test_djangos_command_exits_if_a_database_refuses_it(postgres: Database, client: Client) -> None:
    with DjangoShop(client, default=postgres.url.replace(postgres.name, "not_there")):
        with pytest.raises(CommandError, match="check the name of the database") as refused:
            call_command("relier_relay")
        assert refused.value.returncode == 2
