"""No attempt succeeds without its effect, no two tasks share a mark, and attempts that conflict are put back."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import create_engine, func, insert, select
from sqlalchemy.exc import IntegrityError, SAWarning
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from relier import ExactlyOnceError, IdempotencyInFlightError, OutsideTransactionError, TaskContext, rl_task
from relier.outbox.inbox.exactly_once import AlreadyRan
from relier.run.outcome import Done, Failed, plan_of
from tests.support.databases import Database
from tests.support.inbox_desk import Desk, marks, paid, where
from tests.support.outbox_shop import failing, listen_to_sqlite
from tests.support.servers import wait_until

pytestmark = pytest.mark.anyio

LONG = "x" * 64
PAIRS = [("invoice:aB3x", "invoice:Ab3X"), ("muller", "müller"), (LONG + "1", LONG + "2"), ("ab", "AB")]


def pays(session: Any) -> None:
    session.execute(insert(paid).values(order_no=1))


def task(body: Callable[[TaskContext], Any]) -> Any:
    @rl_task(name=f"once.{body.__name__}")
    def run(ctx: TaskContext) -> Any:
        return body(ctx)

    return run


async def outcome_of(desk: Desk, body: Callable[[TaskContext], Any]) -> Any:
    desk.push(task(body))
    return await desk.run(desk.claim())


def error_in(outcome: Any) -> BaseException:
    assert isinstance(outcome, Failed)
    return outcome.error


# --- done without effect ---------------------------------------------------------------------------------------------


def read_first(ctx: TaskContext) -> str:
    with Session(where["engine"]) as session:
        session.execute(select(func.count()).select_from(paid))
        with ctx.exactly_once(session):
            pays(session)
    return "paid"


def read_first_by_connection(ctx: TaskContext) -> str:
    with where["engine"].connect() as connection:
        connection.execute(select(func.count()).select_from(paid))
        with ctx.exactly_once(connection):
            pays(connection)
    return "paid"


def joins_a_connection(ctx: TaskContext) -> str:
    with where["engine"].connect() as connection, connection.begin() as outer:
        with Session(bind=connection) as session, ctx.exactly_once(session):
            pays(session)
        outer.rollback()
    return "paid"


def rolls_an_outer_savepoint_back(ctx: TaskContext) -> str:
    with Session(where["engine"]) as session, session.begin():
        outer = session.begin_nested()
        with ctx.exactly_once(session):
            pays(session)
        outer.rollback()
    return "paid"


def rolls_back_around_open_savepoints(ctx: TaskContext) -> str:
    """The inner savepoint is still open when the one around the block is rolled back."""
    with where["engine"].begin() as connection:
        outer = connection.begin_nested()
        with ctx.exactly_once(connection):
            pays(connection)
        connection.begin_nested()
        pays(connection)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)  # of the order, which is meant
            outer.rollback()
    return "paid"


@pytest.mark.parametrize(
    "body",
    [
        read_first,
        read_first_by_connection,
        joins_a_connection,
        rolls_an_outer_savepoint_back,
        rolls_back_around_open_savepoints,
    ],
)
async def test_a_block_that_is_not_committed_fails_the_attempt(desk: Desk, body: Any) -> None:
    error = error_in(await outcome_of(desk, body))
    assert isinstance(error, ExactlyOnceError)
    assert "neither the effects nor the mark" in str(error)
    assert desk.payments() == 0


async def test_async_sessions_may_read_first(desk: Desk, database: Database) -> None:
    engine = create_async_engine(database.async_url)
    listen_to_sqlite(engine.sync_engine)

    @rl_task(name="once.aread_first")
    async def aread_first(commits: bool, ctx: TaskContext) -> str:
        async with AsyncSession(engine) as session:
            await session.execute(select(func.count()).select_from(paid))
            async with ctx.exactly_once(session):
                await session.execute(insert(paid).values(order_no=1))
            if commits:
                await session.commit()
        return "paid"

    desk.push(aread_first, False)
    assert isinstance(error_in(await desk.run(desk.claim())), ExactlyOnceError)
    assert desk.payments() == 0
    desk.push(aread_first, True)
    assert await desk.run(desk.claim()) == Done(b'"paid"')
    assert desk.payments() == 1
    await engine.dispose()


def commits_itself(ctx: TaskContext) -> str:
    with Session(where["engine"]) as session:
        session.execute(select(func.count()).select_from(paid))
        with ctx.exactly_once(session):
            pays(session)
            with session.begin_nested() as inner:  # what becomes of it is not what becomes of the block
                inner.rollback()
        session.commit()
        later = session.begin_nested()
        later.rollback()
    return "paid"


def catches_an_error(session: Any) -> None:
    with failing(), session.begin_nested():
        pays(session)
        with failing(), session.begin_nested():
            pays(session)
            raise ZeroDivisionError
        raise ZeroDivisionError


def catches_an_error_inside(ctx: TaskContext) -> str:
    with Session(where["engine"]) as session, ctx.exactly_once(session):
        catches_an_error(session)
        pays(session)
        catches_an_error(session)
    return "paid"


def catches_an_error_before_and_after(ctx: TaskContext) -> str:
    with where["engine"].begin() as connection:
        catches_an_error(connection)
        with connection.begin_nested():
            with ctx.exactly_once(connection):
                catches_an_error(connection)
                pays(connection)
            catches_an_error(connection)
        catches_an_error(connection)
    return "paid"


def commits_the_connection(ctx: TaskContext) -> str:
    with where["engine"].begin() as connection, Session(bind=connection) as session, ctx.exactly_once(session):
        pays(session)
    return "paid"


@pytest.mark.parametrize(
    "body", [commits_itself, commits_the_connection, catches_an_error_inside, catches_an_error_before_and_after]
)
async def test_a_block_that_the_caller_commits_is_done(desk: Desk, body: Any) -> None:
    desk.push(task(body))
    claimed = desk.claim()
    assert await desk.run(claimed) == Done(b'"paid"')
    assert await desk.run(claimed) == Done(None)
    assert desk.payments() == 1


def catches(ctx: TaskContext) -> str:
    """The block raises, and the caller's transaction continues."""
    with Session(where["engine"]) as session, session.begin(), failing(), ctx.exactly_once(session):
        pays(session)
        raise ZeroDivisionError
    return "not paid"


async def test_a_block_that_raises_leaves_no_mark_in_the_callers_transaction(desk: Desk) -> None:
    desk.push(task(catches))
    claimed = desk.claim()
    assert await desk.run(claimed) == await desk.run(claimed) == Done(b'"not paid"')
    assert desk.payments() == 0
    with desk.engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(marks)).scalar_one() == 0


def two_blocks(ctx: TaskContext) -> str:
    for _ in range(2):
        with Session(where["engine"]) as session, ctx.exactly_once(session):
            pays(session)
    return "paid twice"


def commits_inside(ctx: TaskContext) -> str:
    with Session(where["engine"]) as session, ctx.exactly_once(session):
        session.commit()
        pays(session)
    return "paid"


def rolls_back_inside(ctx: TaskContext) -> str:
    with Session(where["engine"]) as session, ctx.exactly_once(session):
        session.rollback()
        pays(session)
    return "paid"


@pytest.mark.parametrize(
    ("body", "final", "effects"), [(two_blocks, True, 1), (commits_inside, True, 0), (rolls_back_inside, False, 0)]
)
async def test_a_block_that_the_next_attempt_would_skip_becomes_a_dead_letter(
    desk: Desk, body: Any, final: bool, effects: int
) -> None:
    outcome = await outcome_of(desk, body)
    assert isinstance(error_in(outcome), ExactlyOnceError)
    assert outcome.final is final
    assert desk.payments() == effects


def swallows(ctx: TaskContext) -> str:
    """A failed flush ends the transaction, and the mark with it."""
    with Session(where["engine"]) as session, ctx.exactly_once(session):
        try:
            session.execute(insert(paid).values(id=1, order_no=1))
            session.execute(insert(paid).values(id=1, order_no=1))
        except IntegrityError:
            session.rollback()
    return "paid"


async def test_a_mark_that_disappears_inside_the_block_fails_the_attempt(desk: Desk) -> None:
    assert isinstance(error_in(await outcome_of(desk, swallows)), ExactlyOnceError)


# --- what commits by itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read_before", [False, True])
async def test_an_engine_that_commits_by_itself_is_refused(desk: Desk, database: Database, read_before: bool) -> None:
    engine = create_engine(database.url, isolation_level="AUTOCOMMIT")

    def autocommit(ctx: TaskContext) -> None:
        with Session(engine) as session:
            if read_before:
                session.execute(select(func.count()).select_from(paid))
            with ctx.exactly_once(session):
                pays(session)

    def by_connection(ctx: TaskContext) -> None:
        with engine.connect() as connection:
            if read_before:
                connection.execute(select(func.count()).select_from(paid))
            with ctx.exactly_once(connection):
                pays(connection)

    for body in (autocommit, by_connection):
        assert isinstance(error_in(await outcome_of(desk, body)), OutsideTransactionError)
    engine.dispose()
    with desk.engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(marks)).scalar_one() == 0
    assert desk.payments() == 0


# --- whose mark it is ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", PAIRS)
async def test_tasks_with_similar_ids_have_marks_of_their_own(desk: Desk, ids: tuple[str, str]) -> None:
    def similar(ctx: TaskContext) -> None:
        with Session(where["engine"]) as session, ctx.exactly_once(session):
            pays(session)

    made = task(similar)
    for task_id in ids:
        desk.push(made, task_id=task_id)
        claimed = desk.claim()
        for _ in range(2):
            assert await desk.run(claimed) == Done(None)
        desk.client.run(desk.client.ledger.commit([(claimed.lease, None, ())]))
    assert desk.payments() == 2


async def test_marks_of_the_previous_release_are_found(desk: Desk) -> None:
    """Such marks contain the id itself, whatever it is."""
    with desk.engine.begin() as connection:
        for task_id in ("invoice:7", "0a" * 16):
            connection.execute(insert(marks).values(task_id=task_id, revision=0, created_at=5, result=b'"paid"'))

    def again(ctx: TaskContext) -> str:
        with Session(where["engine"]) as session, ctx.exactly_once(session):
            pays(session)
        return "paid"

    made = task(again)
    for task_id in ("invoice:7", "0a" * 16):
        desk.push(made, task_id=task_id)
        claimed = desk.claim()
        assert await desk.run(claimed) == Done(b'"paid"')
        desk.client.run(desk.client.ledger.commit([(claimed.lease, None, ())]))
    assert desk.payments() == 0


# --- attempts at once ------------------------------------------------------------------------------------------------


def isolated(database: Database, level: str) -> Any:
    return create_engine(database.url, isolation_level=level, pool_size=20)


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("first", ["commits", "rolls back"])
async def test_attempts_that_wait_for_one_mark_do_not_fail(
    desk: Desk, database: Database, level: str, first: str
) -> None:
    """The first attempt holds the mark while two others wait for it. Depending on its outcome, they skip, run, or are
    put back."""
    if database.kind == "sqlite":
        pytest.skip("one writer at a time: the others wait for the whole database")
    engine = isolated(database, level)
    desk.push(task(read_first))
    claimed = desk.claim()
    seen: list[str] = []
    started = threading.Barrier(3)

    def attempt() -> None:
        started.wait(30)
        try:
            with Session(engine) as session, TaskContext(claimed, desk.line).exactly_once(session):
                pays(session)
            seen.append("ran")
        except AlreadyRan:
            seen.append("skipped")
        except IdempotencyInFlightError:
            seen.append("put back")
        except BaseException as error:  # noqa: BLE001 - the test shows it
            seen.append(repr(error))

    others = [threading.Thread(target=attempt) for _ in range(2)]
    for other in others:
        other.start()
    with failing(), Session(engine) as session, TaskContext(claimed, desk.line).exactly_once(session):
        pays(session)
        started.wait(30)
        waiting(desk, database, 2)
        if first == "rolls back":
            raise ZeroDivisionError
    for other in others:
        other.join(30)
    engine.dispose()
    assert desk.payments() == 1
    assert sorted(seen) == (["skipped"] * 2 if first == "commits" else ["ran", "skipped"])


def waiting(desk: Desk, database: Database, count: int) -> None:
    """Return when `count` attempts wait for the mark."""
    if database.kind == "postgresql":
        sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    else:
        sql = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'INSERT%%relier_inbox%%'"

    def all_wait() -> bool:
        with desk.engine.connect() as connection:
            return bool(connection.exec_driver_sql(sql).scalar_one() == count)

    wait_until(all_wait, 30, "attempts that wait")


async def test_a_snapshot_older_than_the_mark_puts_the_task_back(desk: Desk, database: Database) -> None:
    """In a transaction of the caller's, only the caller can begin again."""
    if database.kind != "postgresql":
        pytest.skip("the others look at the newest version of a row that they lock")
    engine = isolated(database, "REPEATABLE READ")
    desk.push(task(read_first))
    claimed = desk.claim()
    with Session(engine) as session:
        session.execute(select(func.count()).select_from(paid))
        with Session(engine) as other, TaskContext(claimed, desk.line).exactly_once(other):
            pays(other)
        with pytest.raises(IdempotencyInFlightError) as raised, TaskContext(claimed, desk.line).exactly_once(session):
            pays(session)
    engine.dispose()
    plan = plan_of(desk.client.ledger, claimed, Failed(raised.value), None, 0)
    assert plan.words.startswith("was put back for 5 s")
    assert desk.payments() == 1
