"""A database may end a transaction by itself, and report that in an error which code inside the block can catch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DataError as DjangoDataError
from django.db import connection as django_connection
from django.db.transaction import atomic
from sqlalchemy import Engine, func, insert, select, text, update
from sqlalchemy.exc import DataError, OperationalError
from sqlalchemy.orm import Session

from relier import Client, ExactlyOnceError
from relier.outbox.inbox.exactly_once import AlreadyRan, Blocks, ExactlyOnce
from tests.support.databases import Database
from tests.support.django_shop import DjangoShop, Order
from tests.support.inbox_desk import marks, metadata, paid
from tests.support.outbox_shop import engine_of
from tests.support.servers import wait_until

TASK = "ab" * 16
BLOCKED = (
    "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE paid%%' AND id <> connection_id()"
)


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    made = engine_of(database.url)
    metadata.create_all(made)
    with made.begin() as connection:
        connection.execute(insert(paid), [{"order_no": 0}, {"order_no": 0}])
    yield made
    made.dispose()


def once(where: Any, blocks: Blocks | None = None) -> ExactlyOnce:
    return ExactlyOnce(where, TASK, 0, lambda _: None, lambda _: None, blocks=blocks)


def count(engine: Engine, table: Any, *where: Any) -> int:
    with engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(table).where(*where)).scalar_one())


def touch(where: Any, row: int) -> None:
    where.execute(update(paid).where(paid.c.id == row).values(order_no=paid.c.order_no + 1))


@pytest.mark.parametrize("inside", [True, False])
def test_a_caught_deadlock_fails_the_attempt(database: Database, engine: Engine, inside: bool) -> None:
    """MySQL rolls back the whole smaller transaction, including the mark. The rest would be committed without it."""
    if database.kind != "mysql":
        pytest.skip("SQLite has one writer at a time, PostgreSQL takes no statement after it")
    locked, done = threading.Event(), threading.Event()

    def larger() -> None:
        with engine.begin() as connection:
            connection.execute(insert(paid), [{"order_no": 7}] * 200)
            touch(connection, 2)
            locked.set()
            touch(connection, 1)
        done.set()

    def blocked() -> bool:
        with engine.connect() as connection:
            return bool(connection.exec_driver_sql(BLOCKED).scalar_one())

    other, blocks = threading.Thread(target=larger), Blocks()

    def meet(session: Session) -> None:
        other.start()
        assert locked.wait(30)
        wait_until(blocked, 30, "the other one waits")
        with pytest.raises(OperationalError, match="Deadlock"):
            touch(session, 2)
        session.execute(insert(paid).values(order_no=10))

    def smaller(session: Session) -> None:
        if not inside:
            session.begin()
        with once(session, blocks):
            touch(session, 1)
            session.execute(insert(paid).values(order_no=9))
            if inside:
                meet(session)
        if not inside:
            meet(session)
            session.commit()

    with Session(engine) as session:
        if inside:
            with pytest.raises(ExactlyOnceError, match="ended inside the block"):
                smaller(session)
        else:
            smaller(session)
    other.join(30)
    assert done.is_set()
    assert (blocks.broken() is None) is inside  # it has failed already
    assert (count(engine, marks), count(engine, paid, paid.c.order_no == 9)) == (0, 0)
    with Session(engine) as session, once(session):
        session.execute(insert(paid).values(order_no=9))
    assert (count(engine, marks), count(engine, paid, paid.c.order_no == 9)) == (1, 1)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("kind", [Session, Engine.connect])
def test_an_error_that_is_caught_on_postgresql_is_noticed(postgres: Database, inside: bool, kind: Any) -> None:
    """PostgreSQL accepts no further statement, and a commit becomes a rollback without an error."""
    engine, blocks = engine_of(postgres.url), Blocks()
    metadata.create_all(engine)

    def fail(where: Any) -> None:
        with pytest.raises(DataError):
            where.execute(text("SELECT 1 / 0"))

    def pay(where: Any) -> None:
        if not inside:
            where.execute(select(1))
        with once(where, blocks):
            where.execute(insert(paid).values(order_no=9))
            if inside:
                fail(where)
        fail(where)
        where.commit()

    with kind(engine) as where:
        if inside:
            with pytest.raises(ExactlyOnceError, match="ended inside"):
                pay(where)
        else:
            pay(where)
    assert (blocks.broken() is None) is inside
    assert (count(engine, marks), count(engine, paid)) == (0, 0)
    engine.dispose()


@pytest.mark.parametrize("how", ["ROLLBACK", "COMMIT"])
def test_a_callers_transaction_that_ended_without_the_driver_is_noticed(engine: Engine, how: str) -> None:
    blocks = Blocks()
    with Session(engine) as session:
        session.execute(select(1))
        with once(session, blocks):
            session.execute(insert(paid).values(order_no=9))
        session.execute(text(how))
        session.execute(insert(paid).values(order_no=10))
        session.commit()
    committed = how == "COMMIT"
    assert (blocks.broken() is None) is committed
    assert (count(engine, marks), count(engine, paid, paid.c.order_no == 9)) == (committed, committed)


@pytest.mark.parametrize("how", ["ROLLBACK", "COMMIT"])
def test_a_transaction_that_ended_without_the_driver_is_an_error(engine: Engine, how: str) -> None:
    def pay() -> None:
        with Session(engine) as session, once(session):
            session.execute(insert(paid).values(order_no=8))
            session.execute(text(how))
            session.execute(insert(paid).values(order_no=9))

    with pytest.raises(ExactlyOnceError, match="ended inside") as ended:
        pay()
    assert ended.value.final is (how == "COMMIT")
    # SQLite commits it at once: no transaction is open, and the driver was told to begin none.
    assert count(engine, paid, paid.c.order_no == 9) == (1 if engine.dialect.name == "sqlite" else 0)
    if how == "COMMIT":
        with Session(engine) as session, pytest.raises(AlreadyRan), once(session):
            pass


def test_a_transaction_rolled_back_by_raw_sql_in_django_is_an_error(database: Database, client: Client) -> None:
    def pay() -> None:
        with once("default"):
            Order.objects.create(id=1)
            with django_connection.cursor() as cursor:
                cursor.execute("ROLLBACK")
            Order.objects.create(id=2)

    with DjangoShop(client, default=database.url) as shop:
        shop.make_tables()
        with pytest.raises(ExactlyOnceError, match="ended inside"):
            pay()
        with once("default"):
            Order.objects.create(id=3)
        assert shop.orders() == ([2, 3] if database.kind == "sqlite" else [3])


def test_a_deadlock_that_djangos_caller_catches_is_noticed(database: Database, client: Client) -> None:
    """MySQL rolls back the whole transaction, and Django does not notice."""
    blocks = Blocks()
    with DjangoShop(client, default=database.url) as shop:
        shop.make_tables()
        with atomic():
            with once("default", blocks):
                Order.objects.create(id=1)
            with django_connection.cursor() as cursor:
                cursor.execute("ROLLBACK")
                cursor.execute("BEGIN")
            Order.objects.create(id=2)
        assert isinstance(blocks.broken(), ExactlyOnceError)
        assert shop.orders() == [2]


def test_an_error_that_is_caught_in_django_on_postgresql_is_noticed(postgres: Database, client: Client) -> None:
    blocks = Blocks()

    def pay() -> None:
        with once("default", blocks):
            Order.objects.create(id=1)
            with django_connection.cursor() as cursor, pytest.raises(DjangoDataError):
                cursor.execute("SELECT 1 / 0")

    with DjangoShop(client, default=postgres.url) as shop:
        shop.make_tables()
        with pytest.raises(ExactlyOnceError, match="ended inside"):
            pay()
        assert shop.orders() == []
