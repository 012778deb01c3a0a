"""One relay process for several databases, tables and schemas; one that fails does not stop the others."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from django.conf import settings
from django.core.management import CommandError, call_command, load_command_class
from django.db import transaction
from sqlalchemy import MetaData, create_engine, func, select, text
from sqlalchemy.schema import CreateSchema

from relier import Client
from relier.cli.commands.relay import relay as relay_command
from relier.cli.main import rl
from relier.django.database import notice_connector
from relier.outbox.push import forget_outbox
from relier.outbox.sqlalchemy.outbox import Outbox
from relier.settings import environment
from tests.support.databases import Database, SQLite
from tests.support.django_shop import DjangoShop
from tests.support.outbox_shop import Shop, receipt
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


def test_schemas_of_tenants(postgres: Database, client: Client) -> None:
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
        (["--table", "a", "--table", "b"], "no such table: a"),
    ],
)
def test_places_that_cannot_be(options: list[str], says: str) -> None:
    told = CliRunner().invoke(rl, ["outbox", "relay", "--database", "sqlite://", *options])
    assert told.exit_code == 2, told.output
    assert says in told.stderr


def test_a_table_that_is_given_with_and_without_its_schema(shop: Shop, database: Database) -> None:
    schema = {"postgresql": "public", "mysql": database.name, "sqlite": "main"}[database.kind]
    tables = ["--table", "relier_outbox", "--table", f"{schema}.relier_outbox"]
    told = CliRunner().invoke(rl, ["outbox", "relay", "--database", database.url, *tables])
    assert told.exit_code == 2, told.output
    assert f"is given twice, as relier_outbox and as {schema}.relier_outbox" in told.stderr


# --- Django ----------------------------------------------------------------------------------------------------------


def test_djangos_command_has_all_options_of_rl() -> None:
    parser = load_command_class("relier.django", "relier_relay").create_parser("manage.py", "relier_relay")
    theirs = {flag for action in parser._actions for flag in action.option_strings}
    ours = {flag for option in relay_command.params if isinstance(option, click.Option) for flag in option.opts}
    assert ours - theirs == {"--url", "--namespace"}  # Django's come from the environment
    assert "--queue-snapshot-refresh-seconds" in theirs


def test_a_process_for_several_aliases(tmp_path: Path, client: Client) -> None:
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


def test_listening_is_for_postgresql(sqlite: Database, client: Client) -> None:
    with DjangoShop(client, default=sqlite.url) as shop:
        shop.make_tables()
        with pytest.raises(CommandError, match="--listen is for PostgreSQL, not for SQLite"):
            call_command("relier_relay", "--listen")


def test_djangos_command_exits_if_a_database_refuses_it(postgres: Database, client: Client) -> None:
    with DjangoShop(client, default=postgres.url.replace(postgres.name, "not_there")):
        with pytest.raises(CommandError, match="check the name of the database") as refused:
            call_command("relier_relay")
        assert refused.value.returncode == 2
