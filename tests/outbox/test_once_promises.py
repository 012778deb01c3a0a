"""Whatever ends a transaction, an attempt does not succeed without its effect, and an attempt that is skipped is
done."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, func, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from relier import ExactlyOnceError, TaskContext, rl_task
from relier.errors import OutsideTransactionError
from relier.run.outcome import Done, Failed
from tests.support.databases import Database
from tests.support.inbox_desk import Desk, marks, paid, where

pytestmark = pytest.mark.anyio


def pays(session: Any) -> None:
    session.execute(insert(paid).values(order_no=1))


def count_of_marks(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(marks)).scalar_one())


@rl_task(name="promises.nested")
def nested(callers: bool, ctx: TaskContext) -> str:
    around = Session.begin if callers else contextlib.nullcontext
    with Session(where["engine"]) as session, around(session), ctx.exactly_once(session):
        pays(session)
        with ctx.exactly_once(session):
            pays(session)
    return "paid"


@pytest.mark.parametrize("callers", [True, False])
async def test_a_second_nested_block_is_refused(desk: Desk, callers: bool) -> None:
    """The inner block would find the mark of the outer one, and end the task as if an earlier attempt had committed."""
    desk.push(nested, callers)
    outcome = await desk.run(desk.claim())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ExactlyOnceError)
    assert "second" in str(outcome.error)
    assert (outcome.final, desk.payments(), count_of_marks(desk.engine)) == (True, 0, 0)


@rl_task(name="promises.beside")
async def beside(ctx: TaskContext) -> str:
    async def pay() -> None:
        async with AsyncSession(where["async"]) as session, ctx.exactly_once(session):
            await session.execute(insert(paid).values(order_no=1))

    await asyncio.gather(pay(), pay(), return_exceptions=True)
    return "paid twice"


async def test_a_second_concurrent_block_is_refused(desk: Desk, async_engine: AsyncEngine) -> None:
    """The second block would wait for the mark of the first, and then end the task without its own effect."""
    desk.push(beside)
    outcome = await desk.run(desk.claim())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ExactlyOnceError)
    assert (outcome.final, desk.payments()) == (True, 1)


@pytest.fixture
async def async_engine(database: Database) -> Any:
    engine = where["async"] = create_async_engine(database.async_url)
    yield engine
    await engine.dispose()


@rl_task(name="promises.grouped")
async def grouped(ctx: TaskContext) -> str:
    async def pay() -> None:
        async with AsyncSession(where["async"]) as session, ctx.exactly_once(session) as mark:
            await session.execute(insert(paid).values(order_no=1))
            mark.result = "paid before"

    async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
        inner.create_task(pay())
        outer.create_task(asyncio.sleep(0))
    return "paid"


async def test_an_attempt_that_is_skipped_inside_a_task_group_is_done(desk: Desk, async_engine: AsyncEngine) -> None:
    """A TaskGroup wraps exceptions that its tasks raise."""
    desk.push(grouped)
    claimed = desk.claim()
    assert await desk.run(claimed) == Done(b'"paid"')
    assert await desk.run(claimed) == Done(b'"paid before"')
    assert desk.payments() == 1


@rl_task(name="promises.lost")
def loses_its_commit(by_session: bool, ctx: TaskContext) -> str:
    """The commit fails after SQLAlchemy has reported it, and the task catches the error."""
    database: Database = where["database"]
    with Session(where["engine"]) if by_session else where["engine"].connect() as callers:
        callers.execute(select(func.count()).select_from(paid))
        with ctx.exactly_once(callers):
            pays(callers)
        connection = callers.connection() if by_session else callers
        event.listen(connection, "commit", lambda _: database.kill_connections())
        with contextlib.suppress(DBAPIError):
            callers.commit()
    return "paid"


@pytest.mark.parametrize("by_session", [True, False])
async def test_a_commit_that_fails_and_is_caught_fails_the_attempt(
    desk: Desk, database: Database, by_session: bool
) -> None:
    if database.kind == "sqlite":
        pytest.skip("nobody can cut its connections")
    where["database"] = database
    desk.push(loses_its_commit, by_session)
    claimed = desk.claim()
    outcome = await desk.run(claimed)
    desk.engine.dispose()
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ExactlyOnceError)
    assert "neither the effects nor the mark" in str(outcome.error)
    assert (desk.payments(), count_of_marks(desk.engine)) == (0, 0)


@rl_task(name="promises.unanswered")
def loses_the_answer(ctx: TaskContext) -> str:
    """The server has committed when the connection breaks."""
    database: Database = where["database"]

    def cut(connection: Any) -> None:
        connection.connection.driver_connection.cursor().execute("COMMIT")
        database.kill_connections()

    with Session(where["engine"]) as session:
        session.execute(select(func.count()).select_from(paid))
        with ctx.exactly_once(session) as mark:
            pays(session)
            mark.result = "paid before"
        event.listen(session.connection(), "commit", cut)
        with contextlib.suppress(DBAPIError):
            session.commit()
    return "paid"


async def test_a_commit_whose_answer_is_lost_is_found_by_the_next_attempt(desk: Desk, database: Database) -> None:
    if database.kind != "mysql":
        pytest.skip("nobody can cut SQLite's connections, and psycopg knows of the first COMMIT")
    where["database"] = database
    desk.push(loses_the_answer)
    claimed = desk.claim()
    outcome = await desk.run(claimed)
    desk.engine.dispose()
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ExactlyOnceError)
    assert "the answer to the commit was lost" in str(outcome.error)
    assert await desk.run(claimed) == Done(b'"paid before"')
    assert (desk.payments(), count_of_marks(desk.engine)) == (1, 1)


@rl_task(name="promises.deferred")
def breaks_a_deferred_constraint(ctx: TaskContext) -> str:
    with Session(where["engine"]) as session:
        session.execute(select(func.count()).select_from(paid))
        with ctx.exactly_once(session):
            pays(session)
            session.execute(text("INSERT INTO child VALUES (7)"))
        with contextlib.suppress(IntegrityError):
            session.commit()
    return "paid"


@pytest.fixture
def postgres_only(database: Database) -> None:
    if database.kind != "postgresql":
        pytest.skip("PostgreSQL's own behaviour")


@pytest.mark.usefixtures("postgres_only")
async def test_a_constraint_that_fails_at_the_commit_fails_the_attempt(desk: Desk) -> None:
    with desk.engine.begin() as connection:
        connection.execute(text("CREATE TABLE parent (id INTEGER PRIMARY KEY)"))
        connection.execute(text("CREATE TABLE child (id INTEGER REFERENCES parent(id) DEFERRABLE INITIALLY DEFERRED)"))
    desk.push(breaks_a_deferred_constraint)
    outcome = await desk.run(desk.claim())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ExactlyOnceError)
    assert desk.payments() == 0


@rl_task(name="promises.listener")
def has_a_careless_listener(ctx: TaskContext) -> str:
    def audit(session: Session) -> None:
        with contextlib.suppress(DBAPIError):
            session.execute(text("SELECT 1 FROM no_such_table"))

    with Session(where["engine"]) as session:
        event.listen(session, "before_commit", audit)
        with ctx.exactly_once(session):
            pays(session)
    return "paid"


@pytest.mark.usefixtures("postgres_only")
async def test_an_error_that_a_listener_of_the_commit_catches_is_noticed(desk: Desk) -> None:
    """PostgreSQL then turns the commit into a rollback, without an error."""
    desk.push(has_a_careless_listener)
    outcome = await desk.run(desk.claim())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ExactlyOnceError)
    assert (desk.payments(), count_of_marks(desk.engine)) == (0, 0)


@rl_task(name="promises.plain_sqlite")
def rolls_back(is_connection: bool, ctx: TaskContext) -> str:
    with where["plain"].connect() if is_connection else Session(where["plain"]) as callers:
        callers.execute(select(1))
        with ctx.exactly_once(callers):
            pays(callers)
        callers.rollback()
    return "paid"


@pytest.mark.parametrize("is_connection", [True, False])
async def test_a_block_works_on_sqlite_without_listeners(desk: Desk, database: Database, is_connection: bool) -> None:
    """Python's driver does not begin a transaction for a savepoint, so the release of the savepoint would be a
    commit."""
    if database.kind != "sqlite":
        pytest.skip("SQLite's driver alone")
    where["plain"] = create_engine(database.url)
    desk.push(rolls_back, is_connection)
    outcome = await desk.run(desk.claim())
    where["plain"].dispose()
    assert isinstance(outcome, Failed)
    assert (desk.payments(), count_of_marks(desk.engine)) == (0, 0)


@pytest.mark.parametrize("callers", [True, False])
@pytest.mark.parametrize("is_connection", [True, False])
async def test_a_savepoint_that_the_block_leaves_open_is_released(
    desk: Desk, callers: bool, is_connection: bool
) -> None:
    """A commit releases it."""

    @rl_task(name=f"promises.open_savepoint.{callers}.{is_connection}")
    def leaves_it_open(ctx: TaskContext) -> str:
        with desk.engine.connect() if is_connection else Session(desk.engine) as session:
            if callers:
                session.execute(select(1))
            with ctx.exactly_once(session):
                session.begin_nested()
                pays(session)
            if callers:
                session.commit()
        return "paid"

    desk.push(leaves_it_open)
    assert await desk.run(desk.claim()) == Done(b'"paid"')
    assert (desk.payments(), count_of_marks(desk.engine)) == (1, 1)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python's driver of SQLite has the option since 3.12")
async def test_a_driver_of_sqlite_that_commits_by_itself_is_refused(desk: Desk, database: Database) -> None:
    if database.kind != "sqlite":
        pytest.skip("SQLite's driver alone")
    engine = create_engine(database.url, connect_args={"autocommit": True})

    @rl_task(name="promises.autocommit")
    def fails(ctx: TaskContext) -> None:
        with Session(engine) as session, ctx.exactly_once(session):
            raise ZeroDivisionError

    desk.push(fails)
    outcome = await desk.run(desk.claim())
    engine.dispose()
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, OutsideTransactionError)
    assert count_of_marks(desk.engine) == 0
