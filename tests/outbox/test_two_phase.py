"""Sessions and connections that commit in two phases, as `Session(twophase=True)` does for several databases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, func, insert, select, text
from sqlalchemy.orm import Session

from relier import Client
from relier.outbox.inbox.exactly_once import Blocks, ExactlyOnce
from tests.support.databases import Database, Postgres
from tests.support.inbox_desk import marks, metadata, paid
from tests.support.outbox_shop import Shop, receipt

TASK = "ab" * 16


class PreparingPostgres(Postgres):
    def command(self) -> list[str]:
        return [*super().command(), "-c", "max_prepared_transactions=10"]


@pytest.fixture(scope="module")
def preparing_postgres() -> Iterator[PreparingPostgres]:
    """PostgreSQL prepares transactions only if it is configured to."""
    server = PreparingPostgres()
    try:
        yield server.start()
    finally:
        server.end()


@pytest.fixture(params=["preparing_postgres", "mariadb", "mysql"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Any = request.getfixturevalue(request.param)
    database: Database = found.fresh() if isinstance(found, Postgres) else found
    return database


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    made = create_engine(database.url)
    metadata.create_all(made)
    yield made
    made.dispose()


@pytest.mark.parametrize("notify", [False, True])
def test_rows_are_those_of_committed_transactions(database: Database, client: Client, notify: bool) -> None:
    """PostgreSQL refuses to prepare a transaction that has used NOTIFY."""
    with Shop(database.url, client) as shop:
        shop.outbox._notify = notify
        with Session(shop.engine, twophase=True) as session, session.begin():
            kept = [receipt.push_in(session, 1).id]
            with session.begin_nested() as savepoint:
                receipt.push_in(session, 2)
                savepoint.rollback()
        for end in (Session.commit, Session.rollback):
            with Session(shop.engine, twophase=True) as session:
                pushed = receipt.push_in(session, 1).id
                session.prepare()
                end(session)
            kept += [pushed] if end is Session.commit else []
        with shop.engine.connect() as connection, connection.begin_twophase() as whole:
            kept.append(receipt.push_in(connection, 1).id)
            whole.prepare()
            whole.commit()
        assert [row.task_id for row in shop.rows()] == kept


def once(where: Any, blocks: Blocks) -> ExactlyOnce:
    return ExactlyOnce(where, TASK, 0, lambda _: None, lambda _: None, blocks=blocks)


def count(engine: Engine, table: Any) -> int:
    with engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


@pytest.mark.parametrize("callers", [False, True])
def test_a_block_commits_in_two_phases(engine: Engine, callers: bool) -> None:
    blocks = Blocks()
    with Session(engine, twophase=True) as session:
        if callers:
            session.execute(select(1))
        with once(session, blocks):
            session.execute(insert(paid).values(order_no=1))
        if callers:
            session.commit()
    assert blocks.broken() is None
    assert (count(engine, marks), count(engine, paid)) == (1, 1)


@pytest.mark.parametrize("prepares", [False, True])
def test_a_transaction_that_ended_without_the_driver_is_noticed(engine: Engine, prepares: bool) -> None:
    """The prepared transaction is another one, without the mark."""
    if engine.dialect.name != "postgresql":
        pytest.skip("MySQL and MariaDB accept no such statement inside an XA transaction")
    blocks = Blocks()
    with Session(engine, twophase=True) as session:
        session.execute(select(1))
        with once(session, blocks):
            session.execute(insert(paid).values(order_no=1))
        session.execute(text("ROLLBACK"))
        session.execute(insert(paid).values(order_no=2))
        if prepares:
            session.prepare()
        session.commit()
    assert blocks.broken() is not None
    assert count(engine, marks) == 0
