"""A refusal ends when its cause does, although a connection remembers it, and no refusal is silent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from sqlalchemy import make_url

from relier import Client
from relier.errors import OutboxDatabaseError
from relier.outbox.publish.target import SENT
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.relay.database_health import CHECK_S, DatabaseState
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.relay import Relay
from relier.outbox.sqlalchemy.engines import database_of
from tests.support.databases import Database, DatabaseServer, MariaDB
from tests.support.mysql import MySQL
from tests.support.outbox_shop import Shop, Takes, row

USER = "newcomer"


class Turns:
    """A relay by a URL, as the process has it, which a test drives turn by turn."""

    def __init__(self, url: str) -> None:
        self.now = 0.0
        self.target = Takes(SENT)
        options = RelayOptions(idle_time=0.001)
        self.relay = Relay(database_of(url), [self.target], options, clock=lambda: self.now)
        self._done = ClaimedBatch(self.relay.relay_id)

    def turn(self, times: int = 3) -> DatabaseState:
        for _ in range(times):
            self._done = self.relay.turn(self._done)
        return self.relay.health.state


@pytest.fixture
def turns() -> Iterator[Callable[[str], Turns]]:
    made: list[Turns] = []

    def make(url: str) -> Turns:
        made.append(Turns(url))
        return made[-1]

    yield make
    for one in made:
        one.relay.close()


def as_newcomer(url: str, port: int | None = None) -> str:
    changed = make_url(url).set(username=USER)
    return (changed if port is None else changed.set(port=port)).render_as_string(hide_password=False)


def make_newcomer(server: DatabaseServer, rights: str, on: str) -> None:
    server.execute(f"DROP USER IF EXISTS {USER}@'127.0.0.1'")
    server.execute(f"CREATE USER {USER}@'127.0.0.1'")
    server.execute(f"GRANT {rights} ON {on} TO {USER}@'127.0.0.1'")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_a_relay_works_again_after_a_grant(
    request: pytest.FixtureRequest, client: Client, turns: Callable[[str], Turns], kind: str, is_async: bool
) -> None:
    """MySQL reads the rights on a whole database when a connection chooses the database."""
    database: Database = request.getfixturevalue(kind)
    make_newcomer(database.server, "SELECT, DELETE", f"{database.name}.*")
    with Shop(database.url, client) as shop:
        driven = turns(as_newcomer(database.async_url if is_async else database.url))
        shop.write(row())
        assert driven.turn() is DatabaseState.REFUSES
        database.server.execute(f"GRANT UPDATE ON {database.name}.* TO {USER}@'127.0.0.1'")
        assert driven.turn() is DatabaseState.ANSWERS
        assert shop.count() == 0


class Forwarder:
    """Forwards connections to a port. Connections keep their server when the port changes, as with a proxy."""

    def __init__(self, port: int) -> None:
        self.to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._listening.accept()
                other = socket.create_connection(("127.0.0.1", self.to))
                for pair in ((one, other), (other, one)):
                    threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        sink.close()

    def close(self) -> None:
        self._listening.close()


@pytest.mark.databases
@pytest.mark.parametrize("is_async", [False, True])
def test_a_relay_follows_a_failover(client: Client, turns: Callable[[str], Turns], is_async: bool) -> None:
    """The former primary becomes read-only and keeps its connections. A relay that finds no rows there only reads."""
    old, new = MariaDB(), MariaDB()
    try:
        for server in (old, new):
            server.start()
            server.execute("CREATE DATABASE shop")
            make_newcomer(server, "SELECT, UPDATE, DELETE", "shop.*")
        forwarder = Forwarder(old.port)
        before, after = old.database("shop"), new.database("shop")
        with Shop(before.url, client), Shop(after.url, client) as shop:
            driven = turns(as_newcomer(before.async_url if is_async else before.url, forwarder.port))
            assert driven.turn() is DatabaseState.ANSWERS
            old.execute("SET GLOBAL read_only = ON")
            driven.now += CHECK_S
            assert driven.turn() is DatabaseState.REFUSES
            forwarder.to = new.port
            shop.write(row())
            assert driven.turn() is DatabaseState.ANSWERS
            assert shop.count() == 0
        forwarder.close()
    finally:
        old.end()
        new.end()


KEEPS = {
    "policy": "ALTER TABLE relier_outbox ENABLE ROW LEVEL SECURITY; "
    "CREATE POLICY a ON relier_outbox FOR SELECT USING (true); "
    "CREATE POLICY b ON relier_outbox FOR UPDATE USING (true)",
    "trigger": "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
    "CREATE TRIGGER keep BEFORE DELETE ON relier_outbox FOR EACH ROW EXECUTE FUNCTION keep()",
}


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("keeps", KEEPS)
def test_rows_that_the_database_keeps_are_sent_once(
    postgres: Database,
    client: Client,
    turns: Callable[[str], Turns],
    keeps: str,
    driver: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The deletion reports no error. A plain broker would get each row again and again."""
    run = postgres.server.execute
    with Shop(postgres.url, client) as shop:
        user = f"{USER}_{driver}_{keeps}"
        run(f"CREATE ROLE {user} LOGIN")
        run(f"GRANT SELECT, UPDATE, DELETE ON relier_outbox TO {user}", postgres.name)
        run(KEEPS[keeps], postgres.name)
        shop.write(row(), row())
        url = make_url(postgres.url if driver == "psycopg" else postgres.asyncpg_url).set(username=user)
        driven = turns(url.render_as_string())
        assert driven.turn(6) is DatabaseState.REFUSES
        assert len(driven.target.seen) == 2
        assert "row-level security" in caplog.text
        run("ALTER TABLE relier_outbox DISABLE ROW LEVEL SECURITY, DISABLE TRIGGER USER", postgres.name)
        assert driven.turn() is DatabaseState.ANSWERS
        assert shop.count() == 0
        run(f"DROP OWNED BY {user}", postgres.name)
        run(f"DROP ROLE {user}")


class StatementLogs:
    """The server's binary log records statements."""

    def command(self) -> list[str]:
        inherited: list[str] = super().command()  # type: ignore[misc]
        kept = [one for one in inherited if one != "--skip-log-bin"]
        return [*kept, "--log-bin=log", "--binlog-format=STATEMENT", "--server-id=1"]


class MariaDBWithStatementLogs(StatementLogs, MariaDB): ...


class MySQLWithStatementLogs(StatementLogs, MySQL): ...


@pytest.mark.databases
@pytest.mark.parametrize("kind", [MariaDBWithStatementLogs, MySQLWithStatementLogs])
def test_a_binary_log_of_statements_is_refused(
    client: Client, turns: Callable[[str], Turns], kind: type[MariaDB]
) -> None:
    server = kind()
    try:
        with Shop(server.start().fresh().url, client) as shop:
            shop.write(row())
            driven = turns(shop.engine.url.render_as_string(hide_password=False))
            with pytest.raises(OutboxDatabaseError, match="set binlog_format to ROW or MIXED"):
                driven.relay.health.check("shop")
            assert driven.turn() is DatabaseState.REFUSES
    finally:
        server.end()


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_safe_update_mode(
    request: pytest.FixtureRequest,
    client: Client,
    turns: Callable[[str], Turns],
    kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Servers can be set to demand a key in the condition of every change. MariaDB finds none in a DELETE by id."""
    database: Database = request.getfixturevalue(kind)
    with Shop(database.url, client) as shop:
        shop.write(row(), row())
        driven = turns(f"{database.url}&init_command=SET sql_safe_updates=1")
        driven.relay.health.check("shop")
        works = driven.turn() is DatabaseState.ANSWERS
        assert works is (kind == "mysql")
        assert works or "turn sql_safe_updates off" in caplog.text
