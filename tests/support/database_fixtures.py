"""`database` is each of the four in turn. `postgres`, `mariadb`, `mysql` and `sqlite` are one of them. All are
empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.databases import Database, MariaDB, Postgres, SQLite
from tests.support.mysql import MySQL

# `make test` leaves to `make test-databases` what needs one of these.
OTHERS = {"mariadb", "mariadb_server", "mysql", "mysql_server", "bouncer"}
KINDS = {"mariadb", "mysql", "MariaDB", MariaDB}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        needs = any(type(value) in (str, type) and value in KINDS for value in params.values())
        if needs or OTHERS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.databases)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """The session's server, one per test process. A test that stops its server boots another one."""
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
    fresh.give_back()


@pytest.fixture
def mariadb(mariadb_server: MariaDB) -> Iterator[Database]:
    fresh = mariadb_server.fresh()
    yield fresh
    fresh.give_back()


@pytest.fixture
def mysql(mysql_server: MySQL) -> Iterator[Database]:
    fresh = mysql_server.fresh()
    yield fresh
    fresh.give_back()


@pytest.fixture
def sqlite(tmp_path: Path) -> Database:
    return SQLite(tmp_path).fresh()


@pytest.fixture(params=["postgres", "mariadb", "mysql", "sqlite"])
def database(request: pytest.FixtureRequest) -> Database:
    one: Database = request.getfixturevalue(request.param)
    return one
