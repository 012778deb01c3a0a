"""The servers that the outbox is tested on have the properties that its tests assume."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, insert, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tests.support.databases import Database, MariaDB, Postgres, require_mariadb
from tests.support.servers import wait_until

rows = Table("rows", MetaData(), Column("id", Integer, primary_key=True), Column("word", String(20)))


@pytest.fixture(params=["postgres", "mariadb", "mysql"])
def served(request: pytest.FixtureRequest) -> Database:
    """A database that has a server."""
    one: Database = request.getfixturevalue(request.param)
    return one


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    name = "served" if "served" in request.fixturenames else "database"
    made = create_engine(request.getfixturevalue(name).url)
    rows.metadata.create_all(made)
    yield made
    made.dispose()


def test_a_committed_row_is_kept_and_a_rolled_back_one_is_not(database: Database, engine: Engine) -> None:
    with engine.begin() as writing:
        writing.execute(insert(rows), [{"id": 1, "word": "ünïcødé 🐇"}])
    with engine.connect() as changing_its_mind:
        changing_its_mind.execute(insert(rows), [{"id": 2, "word": "never"}])
        changing_its_mind.rollback()
    with engine.connect() as reading:
        assert reading.execute(select(rows)).all() == [(1, "ünïcødé 🐇")]


def test_a_second_connection_sees_only_committed_rows(database: Database, engine: Engine) -> None:
    with engine.connect() as one, engine.connect() as other:
        one.execute(insert(rows), [{"id": 1, "word": "one"}])
        assert other.execute(select(rows)).all() == []
        other.rollback()
        one.commit()
        assert other.execute(select(rows)).all() == [(1, "one")]


def test_locked_rows_are_skipped(served: Database, engine: Engine) -> None:
    with engine.begin() as writing:
        writing.execute(insert(rows), [{"id": number, "word": "free"} for number in (1, 2, 3)])
    claim = select(rows.c.id).order_by(rows.c.id).limit(2).with_for_update(skip_locked=True)
    with engine.connect() as one, engine.connect() as other:
        assert one.execute(claim).scalars().all() == [1, 2]
        assert other.execute(claim).scalars().all() == [3]


def test_a_fresh_database_is_empty(database: Database, engine: Engine) -> None:
    another = database.server.fresh()
    made = create_engine(another.url)
    with engine.begin() as writing:
        writing.execute(insert(rows), [{"id": 1, "word": "elsewhere"}])
    rows.metadata.create_all(made)
    with made.connect() as reading:
        assert reading.execute(select(rows)).all() == []
    made.dispose()
    another.drop()


@pytest.mark.anyio
async def test_the_async_driver_reaches_the_same_rows(database: Database, engine: Engine) -> None:
    await _insert_async(database.async_url)
    with engine.connect() as reading:
        assert reading.execute(select(rows)).all() == [(1, "async")]


@pytest.mark.anyio
async def test_asyncpg_reaches_the_same_rows(postgres: Database) -> None:
    made = create_engine(postgres.url, poolclass=NullPool)
    rows.metadata.create_all(made)
    await _insert_async(postgres.asyncpg_url)
    with made.connect() as reading:
        assert reading.execute(select(rows)).all() == [(1, "async")]


async def _insert_async(url: str) -> None:
    made = create_async_engine(url)
    async with made.begin() as writing:
        await writing.execute(insert(rows), [{"id": 1, "word": "async"}])
    await made.dispose()


def test_killed_connections_lose_uncommitted_rows(served: Database, engine: Engine) -> None:
    with engine.connect() as doomed:
        doomed.execute(insert(rows), [{"id": 1, "word": "never"}])
        assert served.kill_connections() == 1
        with pytest.raises(DBAPIError) as failure:
            doomed.execute(select(rows))
        assert failure.value.connection_invalidated
    with engine.connect() as reading:
        assert reading.execute(select(rows)).all() == []


@pytest.mark.parametrize("kind", [Postgres, MariaDB])
def test_a_stopped_server_comes_back_with_what_was_committed(kind: type[Postgres | MariaDB]) -> None:
    server = kind()
    try:
        made = create_engine(server.start().fresh().url, poolclass=NullPool)
        rows.metadata.create_all(made)
        with made.begin() as writing:
            writing.execute(insert(rows), [{"id": 1, "word": "kept"}])
        server.stop()
        with pytest.raises(DBAPIError):
            made.connect()
        server.start()
        with made.connect() as reading:
            assert reading.execute(select(rows)).all() == [(1, "kept")]
    finally:
        server.end()
    assert not server.folder.exists()


STARTER = """
import sys
from tests.support import databases
server = databases.{kind}().start()
print(server.folder, server.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["Postgres", "MariaDB"])
def test_no_process_and_no_folder_outlive_a_killed_starter(kind: str) -> None:
    if kind == "MariaDB":
        require_mariadb()
    script = STARTER.format(kind=kind)
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        folder, pid = starter.stdout.readline().decode().split()
        assert _lives(int(pid))
        starter.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path(folder).exists(), what="the folder's end")
    wait_until(lambda: not _lives(int(pid)), what="the server's end")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
