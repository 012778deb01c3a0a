"""Databases: `database` is each of the three in turn, `postgres`, `mariadb` and `sqlite` one; always an empty one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from databases import Database, MariaDB, Postgres, SQLite


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
def sqlite(tmp_path: Path) -> Database:
    return SQLite(tmp_path).fresh()


@pytest.fixture(params=["postgres", "mariadb", "sqlite"])
def database(request: pytest.FixtureRequest) -> Database:
    one: Database = request.getfixturevalue(request.param)
    return one
