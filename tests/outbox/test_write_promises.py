"""Rows belong to the transaction they were pushed in, even if the session does not see how it ends."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
from sqlalchemy import create_engine, event, func, insert, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from relier import Client
from relier.errors import ConfigurationError, InvalidSubmissionError
from relier.outbox.row import AT_ONCE, NewRow, inserts_of
from tests.support.databases import Database, MariaDB
from tests.support.outbox_shop import Shop, receipt
from tests.support.servers import wait_until

MB = 1_000_000


def orders(shop: Shop) -> int:
    with shop.engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(shop.order)).scalar_one())


def order(shop: Shop, session: Session, number: int) -> str:
    """Add and flush an order, and push its task."""
    session.add(shop.order(id=number))
    session.flush()
    return shop.outbox.add(session, receipt, number).id


def test_rolling_back_a_savepoint_of_the_connection_removes_its_rows(shop: Shop) -> None:
    with shop.session() as session, session.begin():
        savepoint = session.connection().begin_nested()
        order(shop, session, 1)
        savepoint.rollback()
        kept = order(shop, session, 2)
        savepoint = session.connection().begin_nested()
        also = order(shop, session, 3)
        savepoint.commit()
    assert [row.task_id for row in shop.rows()] == [kept, also]
    assert orders(shop) == 2


def test_rolling_back_a_savepoint_of_the_connection_keeps_rows_added_before_it(shop: Shop) -> None:
    """A savepoint of the session, inside that of the connection, makes the session insert its pending rows."""
    with shop.session() as session, session.begin():
        kept = order(shop, session, 1)
        savepoint = session.connection().begin_nested()
        with session.begin_nested():
            order(shop, session, 2)
        savepoint.rollback()
        with session.begin_nested():
            also = order(shop, session, 3)
    assert [row.task_id for row in shop.rows()] == [kept, also]
    assert orders(shop) == 2


@pytest.mark.anyio
async def test_a_rolled_back_savepoint_of_an_async_sessions_connection_removes_its_rows(
    shop: Shop, database: Database
) -> None:
    if database.kind == "sqlite":
        pytest.skip("it needs the listeners for savepoints")
    engine = create_async_engine(database.async_url)
    async with AsyncSession(engine) as session, session.begin():
        kept = (await receipt.apush_in(session, 1)).id
        savepoint = await (await session.connection()).begin_nested()
        await receipt.apush_in(session, 2)
        await savepoint.rollback()
    assert [row.task_id for row in shop.rows()] == [kept]
    await engine.dispose()


@pytest.mark.anyio
async def test_a_push_that_must_be_awaited_inside_a_savepoint_of_the_connection(shop: Shop, database: Database) -> None:
    """`.delay()` cannot be awaited, and the session does not see the end of the savepoint."""
    if database.kind == "sqlite":
        pytest.skip("it needs the listeners for savepoints")
    engine = create_async_engine(database.async_url)
    async with AsyncSession(engine) as session, session.begin():
        savepoint = await (await session.connection()).begin_nested()
        with pytest.raises(ConfigurationError, match=r"use `await task\.apush_in"):
            receipt.push_in(session, 1)
        await savepoint.rollback()
        kept = receipt.push_in(session, 2).id
    assert [row.task_id for row in shop.rows()] == [kept]
    await engine.dispose()


def test_a_session_that_nobody_closes_gives_its_connection_back(sqlite: Database, client: Client) -> None:
    """As without a push, when the garbage collector finds it."""

    def forget_a_session() -> None:
        session = shop.session()
        order(shop, session, 1)

    with Shop(sqlite.url, client) as shop:
        forget_a_session()
        gc.collect()
        assert shop.engine.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_a_commit_of_the_sessions_connection_includes_the_rows(shop: Shop) -> None:
    with shop.session() as session:
        kept = order(shop, session, 1)
        session.connection().commit()
    assert [row.task_id for row in shop.rows()] == [kept]
    assert orders(shop) == 1


def undone_in(caplog: pytest.LogCaptureFixture) -> str:
    """Return the only warning."""
    (warning,) = [one.getMessage() for one in caplog.records if one.name == "relier.outbox"]
    assert "rolled it back" in warning
    return warning


@pytest.mark.parametrize("savepoints", ["none", "released", "rolled back"])
def test_rows_of_a_transaction_that_mysql_has_undone_vanish(
    shop: Shop, database: Database, caplog: pytest.LogCaptureFixture, savepoints: str
) -> None:
    """After a deadlock, the next statement begins another transaction. Code that catches the error commits that one.
    Rows that were inserted earlier, for a savepoint, are rolled back as well."""
    if database.kind != "mysql":
        pytest.skip("SQLite has one writer at a time, PostgreSQL takes no statement after it")
    with shop.engine.begin() as connection:
        connection.execute(text("CREATE TABLE stock (id INT PRIMARY KEY, left_over INT)"))
        connection.execute(text("INSERT INTO stock VALUES (1, 0), (2, 0), (3, 0), (4, 0)"))
    locked, waits = threading.Event(), threading.Event()

    def larger() -> None:
        with shop.engine.begin() as connection:
            connection.execute(text("UPDATE stock SET left_over = 1 WHERE id >= 2"))
            connection.execute(text("INSERT INTO stock SELECT id + 10, 0 FROM stock WHERE id >= 2"))
            locked.set()
            assert waits.wait(30)
            connection.execute(text("UPDATE stock SET left_over = 1 WHERE id = 1"))

    thread = threading.Thread(target=larger)
    thread.start()
    assert locked.wait(30)
    with shop.session() as session, session.begin():
        undone = [order(shop, session, 1)]
        if savepoints != "none":
            savepoint = session.begin_nested()
            inside = order(shop, session, 3)
            getattr(savepoint, "commit" if savepoints == "released" else "rollback")()
            undone += [inside] if savepoints == "released" else []
        session.execute(text("UPDATE stock SET left_over = 2 WHERE id = 1"))
        waits.set()
        blocked = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE stock%%id = 1'"
        with shop.engine.connect() as looking:
            wait_until(lambda: looking.execute(text(blocked)).scalar_one(), 30, "the other one waits")
        with pytest.raises(DBAPIError, match="1213"):
            session.execute(text("UPDATE stock SET left_over = 2 WHERE id = 2"))
        kept = order(shop, session, 2)
    thread.join()
    assert [row.task_id for row in shop.rows()] == [kept]
    assert orders(shop) == 1
    warning = undone_in(caplog)
    assert f"dropped={len(undone)} " in warning
    assert all(one in warning for one in undone)


@pytest.mark.databases
def test_rows_of_a_transaction_that_a_timeout_has_undone_vanish(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """MySQL and MariaDB roll back only the statement, unless they are configured to roll back everything."""

    class Strict(MariaDB):
        def command(self) -> list[str]:
            return [*super().command(), "--innodb-rollback-on-timeout"]

    server = Strict()
    try:
        with Shop(server.start().fresh().url, client) as shop, shop.engine.connect() as other:
            shop.place(7)
            other.execute(text("SELECT * FROM orders WHERE id = 7 FOR UPDATE"))
            with shop.session() as session, session.begin():
                session.execute(text("SET innodb_lock_wait_timeout = 1"))
                undone = order(shop, session, 1)
                with pytest.raises(DBAPIError, match="1205"):
                    session.execute(text("SELECT * FROM orders WHERE id = 7 FOR UPDATE"))
                order(shop, session, 2)
            assert (orders(shop), shop.count()) == (2, 2)
            assert undone in undone_in(caplog)
    finally:
        server.end()


@pytest.mark.parametrize("listeners", [True, False])
@pytest.mark.parametrize("savepoint", [True, False])
def test_rows_of_a_transaction_that_sqlite_has_undone_vanish(
    sqlite: Database, client: Client, caplog: pytest.LogCaptureFixture, listeners: bool, savepoint: bool
) -> None:
    with Shop(sqlite.url, client) as shop:
        shop.place(0)
        engine = shop.engine if listeners else create_engine(sqlite.url)
        with Session(engine) as session, session.begin():
            undone = order(shop, session, 1)
            if savepoint:
                with session.begin_nested():
                    session.execute(select(1))
            with pytest.raises(DBAPIError, match="UNIQUE"):
                session.execute(text("INSERT OR ROLLBACK INTO orders (id) VALUES (0)"))
        assert (orders(shop), shop.count()) == (1, 1)
        assert undone in undone_in(caplog)
        engine.dispose()


@pytest.mark.parametrize("listeners", [True, False])
def test_an_error_that_undoes_its_statement_alone_drops_no_row(
    sqlite: Database, client: Client, caplog: pytest.LogCaptureFixture, listeners: bool
) -> None:
    """Before the first write, Python's driver has not begun a transaction."""
    with Shop(sqlite.url, client) as shop:
        shop.place(0)
        engine = shop.engine if listeners else create_engine(sqlite.url)
        with Session(engine) as session, session.begin():
            receipt.push_in(session, 1)
            for wrong in ("SELECT 1 FROM nowhere", "INSERT INTO orders (id) VALUES (0)"):
                with pytest.raises(DBAPIError):
                    session.execute(text(wrong))
        assert shop.count() == 2
        assert not [one for one in caplog.records if one.name == "relier.outbox"]
        engine.dispose()


def test_many_large_pushes_in_one_transaction(shop: Shop) -> None:
    """MySQL accepts statements of up to 64 MiB, MariaDB of up to 16 MiB."""
    with shop.session() as session, session.begin():
        ids = [receipt.push_in(session, number, "x" * MB).id for number in range(40)]
    assert [row.task_id for row in shop.rows()] == ids


def test_rows_are_split_by_number_and_by_size() -> None:
    def sizes(*bodies: int) -> list[int]:
        rows = [NewRow("i", "ledger", "n", "q", "", b"x" * size) for size in bodies]
        return [len(some) for some in inserts_of(rows)]

    assert sizes() == []
    assert sizes(*[1] * (2 * AT_ONCE + 1)) == [AT_ONCE, AT_ONCE, 1]
    assert sizes(9 * MB, 1, 1, 9 * MB, 1) == [1, 2, 1, 1]


@pytest.mark.parametrize("what", ["task_id", "order_key"])
@pytest.mark.parametrize("bad", ["a\0b", "a\ud800b"])
def test_text_that_no_database_stores_is_refused_at_the_push(shop: Shop, what: str, bad: str) -> None:
    options: dict[str, Any] = {what: bad}
    with shop.session() as session, session.begin():
        session.add(shop.order(id=1))
        with pytest.raises(InvalidSubmissionError):
            receipt.with_options(**options).push_in(session, 1)
    assert (orders(shop), shop.count()) == (1, 0)


@pytest.mark.parametrize("ending", ["rollback", "reset"])
def test_a_push_in_the_next_transaction_while_the_last_one_ends(shop: Shop, ending: str) -> None:
    """A listener that was there before the first push hears of the end first."""
    later: list[str] = []

    def follow(session: Session, ended: Any) -> None:
        if ended.parent is None and not later:
            later.append("")
            session.execute(insert(shop.order).values(id=2))
            later[0] = shop.outbox.add(session, receipt, 2).id

    with shop.session() as session:
        event.listen(session, "after_transaction_end", follow)
        order(shop, session, 1)
        getattr(session, ending)()
        session.commit()
    assert [row.task_id for row in shop.rows()] == later
    assert orders(shop) == 1
