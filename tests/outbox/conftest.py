"""`database` is each of the four in turn; `postgres`, `mariadb`, `mysql` and `sqlite` are one of them; all empty."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from inbox_desk import Desk, metadata, where
from shop import Shop, engine_of

from databases import Database, MariaDB, Postgres, SQLite
from mysql import MySQL
from relier import Client, Settings, use_client


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """The session's server, one per process of the tests. Who stops it boots one of their own."""
    server = Postgres()
    try:
        yield server.start()
    finally:
        server.end()


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDB]:
    server = MariaDB()
    try:
        yield server.start()
    finally:
        server.end()


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MySQL]:
    server = MySQL()
    try:
        yield server.start()
    finally:
        server.end()


@pytest.fixture
def postgres(postgres_server: Postgres) -> Iterator[Database]:
    fresh = postgres_server.fresh()
    yield fresh
    fresh.drop()


@pytest.fixture
def mariadb(mariadb_server: MariaDB) -> Iterator[Database]:
    fresh = mariadb_server.fresh()
    yield fresh
    fresh.drop()


@pytest.fixture
def mysql(mysql_server: MySQL) -> Iterator[Database]:
    fresh = mysql_server.fresh()
    yield fresh
    fresh.drop()


@pytest.fixture
def sqlite(tmp_path: Path) -> Database:
    return SQLite(tmp_path).fresh()


@pytest.fixture(params=["postgres", "mariadb", "mysql", "sqlite"])
def database(request: pytest.FixtureRequest) -> Database:
    one: Database = request.getfixturevalue(request.param)
    return one


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    """The ledger of the test: without limits, but for those a test sets itself."""
    own = Client(settings.model_copy(update={"admission_limit": 0}))
    use_client(own)
    yield own
    use_client(None)
    own.close()


@pytest.fixture
def shop(database: Database, client: Client) -> Iterator[Shop]:
    """A shop with an outbox, on each database in turn."""
    with Shop(database.url, client) as made:
        yield made


@pytest.fixture
def pg_shop(postgres: Database, client: Client) -> Iterator[Shop]:
    with Shop(postgres.url, client) as made:
        yield made


@pytest.fixture
async def desk(database: Database, client: Client) -> AsyncIterator[Desk]:
    """Where attempts are run by hand, on each database in turn."""
    engine = where["engine"] = engine_of(database.url)
    metadata.create_all(engine)
    yield Desk(client, engine)
    engine.dispose()
