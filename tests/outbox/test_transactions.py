"""Random programs on a session: the outbox contains the rows of the committed orders, in the order of pushes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.exc import IntegrityError, InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.support.databases import Database
from tests.support.outbox_shop import Shop, failing, listen_to_sqlite, receipt

# SQLAlchemy warns of a transaction that was ended twice, as random programs do.
pytestmark = pytest.mark.filterwarnings("ignore:(transaction|nested transaction) already deassociated")

TAKEN = 0  # an order that exists: to add it again makes the flush fail
MODES = ("conditional_savepoint", "rollback_only", "control_fully", "create_savepoint")

STEPS = [
    *("place", "place first", "place by statement", "flush", "begin nested", "release", "undo", "undo outermost"),
    *("fail in block", "fail by hand", "get or create", "commit", "commit whole", "rollback", "close"),
]
PROGRAMS = st.lists(st.sampled_from(STEPS), min_size=1, max_size=12)
ENDS = st.sampled_from(["commit", "rollback", "close", "forget"])


class Program:
    """Run steps on one session. `joined`: the session is part of a transaction of its connection."""

    def __init__(self, shop: Shop, session: Session, numbers: Iterator[int], *, joined: bool) -> None:
        self.shop = shop
        self.session = session
        self.numbers = numbers
        self.joined = joined
        self.savepoints: list[Any] = []

    def run(self, steps: list[str], end: str) -> None:
        for step in steps:
            getattr(self, step.replace(" ", "_"))()
        if self.joined:
            self.session.flush()  # what was never flushed is not in the connection's transaction
        if end != "forget":
            getattr(self, end)()

    def place(self) -> None:
        number = next(self.numbers)
        self.session.add(self.shop.order(id=number))
        self.push(number)

    def place_first(self) -> None:
        number = next(self.numbers)
        self.push(number)
        self.session.add(self.shop.order(id=number))

    def place_by_statement(self) -> None:
        number = next(self.numbers)
        self.push(number)
        self.session.execute(insert(self.shop.order).values(id=number))

    def push(self, number: int) -> None:
        receipt.with_options(task_id=f"order-{number}").push_in(self.session, number)

    def flush(self) -> None:
        self.session.flush()

    def begin_nested(self) -> None:
        self.savepoints.append(self.session.begin_nested())

    def release(self) -> None:
        if self.savepoints:
            self.savepoints.pop().commit()

    def undo(self) -> None:
        if self.savepoints:
            self.savepoints.pop().rollback()

    def undo_outermost(self) -> None:
        if self.savepoints:
            self.savepoints[0].rollback()
            self.savepoints.clear()

    def collide(self) -> None:
        self.session.add(self.shop.order(id=TAKEN))
        self.session.flush()

    def get_or_create(self) -> None:
        """The error of the flush ends the savepoint."""
        with contextlib.suppress(IntegrityError), self.session.begin_nested():
            self.place()
            self.collide()
        self.place()

    def fail_in_block(self) -> None:
        with failing(), self.session.begin_nested():
            self.place()
            with pytest.raises(IntegrityError):
                self.collide()
            raise ZeroDivisionError

    def fail_by_hand(self) -> None:
        with pytest.raises(IntegrityError):
            self.collide()
        self.undo() if self.savepoints else self.rollback()

    def commit(self) -> None:
        """Commit everything. The session's own commit releases open savepoints."""
        self.session.commit()
        self.savepoints.clear()

    def commit_whole(self) -> None:
        whole = self.session.get_transaction()
        if whole is not None:
            whole.commit()
        self.savepoints.clear()

    def rollback(self) -> None:
        self.session.rollback()
        self.savepoints.clear()

    def close(self) -> None:
        if self.joined:
            self.session.flush()
        self.session.close()
        self.savepoints.clear()


@pytest.fixture
def world(shop: Shop) -> Callable[[], None]:
    """Empty the shop, except for one order."""

    def start() -> None:
        with shop.engine.begin() as connection:
            for table in (shop.outbox.table, shop.order.__table__):
                connection.execute(delete(table))
            connection.execute(insert(shop.order).values(id=TAKEN))

    return start


def check(shop: Shop) -> None:
    with shop.engine.connect() as connection:
        orders = sorted(connection.execute(select(shop.order.id).where(shop.order.id != TAKEN)).scalars())
    assert [int(row.task_id.removeprefix("order-")) for row in shop.rows()] == orders


def examples(count: int) -> Any:
    quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=count, deadline=None, suppress_health_check=quiet)


def test_rows_are_those_of_the_orders(shop: Shop, world: Callable[[], None]) -> None:
    @examples(120)
    @given(PROGRAMS, ENDS)
    def holds(steps: list[str], end: str) -> None:
        world()
        session = shop.session()
        Program(shop, session, itertools.count(1), joined=False).run(steps, end)
        session.close()
        check(shop)

    holds()


def joined(connection: Connection, mode: Any, *, nested: bool) -> Session:
    connection.begin()
    if nested:
        connection.begin_nested()
    return Session(bind=connection, join_transaction_mode=mode)


def run_joined(program: Program, connection: Connection, steps: list[str], ends: list[str]) -> None:
    """`ends`: the ends of the session and the connection, in order. SQLAlchemy may refuse a step because its
    transaction has ended; then the rest of the program is skipped."""
    with contextlib.suppress(InvalidRequestError):
        program.run(steps, "forget")
    for end in ends:
        with contextlib.suppress(InvalidRequestError):
            getattr(connection if end.startswith("connection") else program, end.rpartition(" ")[2])()


JOINS = st.sampled_from(MODES), st.booleans(), PROGRAMS
JOINED_ENDS = st.tuples(
    st.sampled_from(["commit", "rollback", "close", "flush"]),
    st.sampled_from(["connection commit", "connection rollback", "connection close"]),
).flatmap(st.permutations)


def test_rows_of_sessions_that_joined_a_transaction_commit_or_vanish_too(shop: Shop, world: Callable[[], None]) -> None:
    @examples(200)
    @given(*JOINS, JOINED_ENDS)
    def holds(mode: Any, nested: bool, steps: list[str], ends: list[str]) -> None:
        world()
        with shop.engine.connect() as connection:
            session = joined(connection, mode, nested=nested)
            run_joined(Program(shop, session, itertools.count(1), joined=True), connection, steps, ends)
        session.close()
        check(shop)

    holds()


def test_rows_of_async_sessions_commit_or_vanish_too(shop: Shop, database: Database, world: Callable[[], None]) -> None:
    """The programs of the test above, with an async driver."""
    engine = create_async_engine(database.async_url)
    listen_to_sqlite(engine.sync_engine)

    async def plain(steps: list[str], end: str) -> None:
        async with AsyncSession(engine) as session:
            await session.run_sync(lambda inner: Program(shop, inner, itertools.count(1), joined=False).run(steps, end))

    async def join(mode: Any, nested: bool, steps: list[str], ends: list[str]) -> None:
        def run(connection: Connection) -> None:
            session = joined(connection, mode, nested=nested)
            run_joined(Program(shop, session, itertools.count(1), joined=True), connection, steps, ends)
            session.close()

        async with engine.connect() as connection:
            await connection.run_sync(run)

    with asyncio.Runner() as runner:

        @examples(40)
        @given(PROGRAMS, ENDS, *JOINS[:2], JOINED_ENDS)
        def holds(steps: list[str], end: str, mode: Any, nested: bool, ends: list[str]) -> None:
            for work in (plain(steps, end), join(mode, nested, steps, ends)):
                world()
                runner.run(work)
                check(shop)

        holds()
        runner.run(engine.dispose())


def test_a_connection_that_commits_while_its_session_is_open(shop: Shop) -> None:
    with shop.engine.connect() as connection, connection.begin():
        session = Session(bind=connection)
        session.add(shop.order(id=1))
        session.flush()
        receipt.push_in(session, 1)
        session.close()
    assert shop.count() == 1


@pytest.mark.anyio
async def test_an_async_session_may_join_a_transaction(shop: Shop, database: Database) -> None:
    """With `await`, rows are inserted at once. Without it, they wait for the commit of the session or the
    connection."""
    engine = create_async_engine(database.async_url)
    async with engine.connect() as connection, connection.begin():
        session = AsyncSession(bind=connection)
        await receipt.with_options(task_id="1").apush_in(session, 1)
        await session.close()
        async with AsyncSession(bind=connection) as other:
            receipt.with_options(task_id="2").push_in(other, 2)
            await other.commit()
        forgotten = AsyncSession(bind=connection)
        receipt.with_options(task_id="3").push_in(forgotten, 3)
    await forgotten.close()
    await engine.dispose()
    assert [int(row.task_id) for row in shop.rows()] == [1, 2, 3]
