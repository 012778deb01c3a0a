"""A database that refuses a relay: a typed error at the start; later, the liveness file is not touched, and the log
repeats the error."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import URL

from relier import Client
from relier.outbox.publish.target import SENT
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.relay.database_health import REPEAT_S
from relier.outbox.relay.metrics import RelayCollector
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.relay import Relay
from relier.outbox.sqlalchemy.engines import EngineDatabase
from relier.outbox.table.refusals import refusal_in
from relier.settings import environment
from tests.support.databases import Database, MariaDB
from tests.support.outbox_shop import Scripted, Shop

USER = "clerk"


@pytest.fixture(params=["postgres", "mariadb"])
def served(request: pytest.FixtureRequest) -> Database:
    one: Database = request.getfixturevalue(request.param)
    return one


@pytest.fixture
def clerk(served: Database, client: Client) -> Iterator[Shop]:
    """A shop whose relay is a database user that may log in, and nothing else yet."""
    run = served.server.execute
    with Shop(served.url, client) as shop:
        run(f"CREATE USER {USER}@'%' IDENTIFIED BY 'right'" if is_mariadb(served) else f"CREATE ROLE {USER} LOGIN")
        try:
            yield shop
        finally:
            revoke(served)
            run(f"DROP USER {USER}@'%'" if is_mariadb(served) else f"DROP ROLE {USER}")


def is_mariadb(database: Database) -> bool:
    return isinstance(database.server, MariaDB)


def as_clerk(shop: Shop) -> URL:
    return shop.engine.url.set(username=USER, password="right")


def grant(database: Database, rights: str) -> None:
    on_table(database, f"GRANT {rights} ON {{table}} TO {{user}}")


def revoke(database: Database) -> None:
    try:
        on_table(database, "REVOKE ALL ON {table} FROM {user}")
    except Exception as error:
        if "no such grant" not in str(error):
            raise


def on_table(database: Database, statement: str) -> None:
    if is_mariadb(database):
        database.server.execute(statement.format(table=f"{database.name}.relier_outbox", user=f"{USER}@'%'"))
        return
    engine = create_engine(database.url)
    with engine.begin() as connection:
        connection.exec_driver_sql(statement.format(table="relier_outbox", user=USER))
    engine.dispose()


def start(shop: Shop, url: URL) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "relier.cli", "outbox", "relay", "--database"]
    command.append(url.render_as_string(hide_password=False))
    environ = {**os.environ, **environment(shop.client.settings)}
    return subprocess.run(command, env=environ, stderr=subprocess.PIPE, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"username": "stranger", "password": "wrong"}, "check the user, the password and the host"),
        ({"database": "not_there"}, "check the name of the database"),
        ({}, "grant SELECT, UPDATE and DELETE on relier_outbox"),
    ],
    ids=["user", "database", "rights"],
)
def test_a_relay_that_is_refused_at_the_start_says_why_and_ends(
    clerk: Shop, served: Database, change: dict[str, str], says: str
) -> None:
    if not change:
        grant(served, "SELECT")
    ended = start(clerk, (as_clerk(clerk) if not change else clerk.engine.url).set(**change))
    assert ended.returncode == 2, ended.stderr
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "wrong" not in ended.stderr


def test_a_relay_refused_later_repeats_the_error_and_stops_touching_its_liveness_file(
    clerk: Shop, served: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grant(served, "SELECT, UPDATE, DELETE")
    engine, sign, now = create_engine(as_clerk(clerk)), tmp_path / "alive", [0.0]
    options = RelayOptions(idle_time=0.001, liveness_file=str(sign))
    relay = Relay(EngineDatabase(engine), [Scripted(SENT)], options, clock=lambda: now[0])
    collected = RelayCollector(relay)
    done = relay.turn(ClaimedBatch(relay.relay_id))
    sign.unlink()
    relay.turn(done)
    assert sign.exists()
    assert state_in(collected) == 0

    revoke(served)
    caplog.set_level(logging.INFO, "relier.outbox")
    relay.turn(done)
    sign.unlink()
    for _ in range(3):
        relay.turn(done)
    assert not sign.exists()
    assert state_in(collected) == 2
    (told,) = errors_in(caplog)
    assert "denied" in told
    assert "grant SELECT, UPDATE and DELETE on relier_outbox" in told
    now[0] += REPEAT_S
    relay.turn(done)
    assert len(errors_in(caplog)) == 2

    grant(served, "SELECT, UPDATE, DELETE")
    relay.turn(done)
    relay.turn(done)
    assert sign.exists()
    assert state_in(collected) == 0
    assert caplog.messages[-1] == "database is available again"
    relay.close()
    engine.dispose()


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


def state_in(collected: RelayCollector) -> float:
    (found,) = (one for one in collected.collect() if one.name == "relier_outbox_database_state")
    return float(found.samples[0].value)


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ('connection failed: FATAL:  password authentication failed for user "shop"', True),
        ('connection failed: FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "shop"', True),
        ("connection failed: Connection refused", False),
        ("FATAL:  the database system is starting up", False),
        ("FATAL:  sorry, too many clients already", False),
    ],
)
def test_refusals_of_a_connection_are_recognised(said: str, refused: bool) -> None:
    """libpq gives no code if no connection was made."""
    assert (refusal_in(OSError(said)) is not None) is refused
    assert re.match("connection|FATAL", said)
