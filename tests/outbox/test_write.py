"""A push inside a transaction takes effect if and only if the transaction commits."""

from __future__ import annotations

import contextvars
import os
import subprocess
import sys
import time
from typing import Any

import pytest
from sqlalchemy import MetaData, create_engine, event, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, object_session, scoped_session, sessionmaker

from relier import ConfigurationError, OutsideTransactionError, PayloadTooLargeError, TaskNotFoundError, TaskState
from relier.errors import InvalidSubmissionError
from relier.outbox.push import forget_outbox
from relier.outbox.row import LONGEST, TOMB_MS, Row, body_of
from relier.outbox.sqlalchemy.outbox import Outbox
from tests.support.databases import Database
from tests.support.outbox_shop import Shop, failing, receipt


def kept(shop: Shop, n: int = 0):
    row = shop.rows()[n]
    return body_of(Row(row.id, row.task_id, row.kind, row.name, row.queue, row.body, 0, 1, 0)).task


def test_committed_rows_exist_and_rolled_back_rows_do_not(shop: Shop) -> None:
    ids = shop.place(1, 2)
    with shop.session() as session:
        session.add(shop.order(id=3))
        receipt.push_in(session, 3)
        session.rollback()
    assert [row.task_id for row in shop.rows()] == ids
    assert [row.name for row in shop.rows()] == ["shop.receipt"] * 2


def test_rolling_back_a_savepoint_removes_its_rows(shop: Shop) -> None:
    with shop.session() as session, session.begin():
        outer = shop.outbox.add(session, receipt, 1).id
        with failing(), session.begin_nested():
            shop.outbox.add(session, receipt, 2)
            raise ZeroDivisionError
        with session.begin_nested():
            inner = shop.outbox.add(session, receipt, 3).id
            with failing(), session.begin_nested():
                shop.outbox.add(session, receipt, 4)
                session.flush()
                raise ZeroDivisionError
        last = shop.outbox.add(session, receipt, 5).id
    assert [row.task_id for row in shop.rows()] == sorted([outer, inner, last], key=[outer, inner, last].index)


def test_a_released_savepoint_rolls_back_with_its_outer_transaction(shop: Shop) -> None:
    with shop.session() as session:
        session.begin()
        with session.begin_nested():
            shop.outbox.add(session, receipt, 1)
        session.rollback()
        assert shop.count() == 0
        shop.outbox.add(session, receipt, 2)
        session.commit()
    assert shop.count() == 1


def test_rolling_back_a_savepoint_keeps_rows_added_before_it(shop: Shop) -> None:
    with shop.session() as session, session.begin():
        first = shop.outbox.add(session, receipt, 1).id
        with failing(), session.begin_nested():
            with session.begin_nested():
                shop.outbox.add(session, receipt, 2)
            raise ZeroDivisionError
    assert [row.task_id for row in shop.rows()] == [first]


def test_committing_the_transaction_also_commits_open_savepoints(shop: Shop) -> None:
    with shop.session() as session:
        outer = session.begin()
        ids = [shop.outbox.add(session, receipt, 1).id]
        session.begin_nested()
        ids.append(shop.outbox.add(session, receipt, 2).id)
        outer.commit()
    assert [row.task_id for row in shop.rows()] == ids


def test_rows_pushed_by_a_flush_during_the_commit_are_written(shop: Shop) -> None:
    def inserted(mapper: object, connection: object, order: Any) -> None:
        receipt.push_in(object_session(order), order.id)

    event.listen(shop.order, "after_insert", inserted)
    with shop.session() as session:
        session.add(shop.order(id=1))
        session.commit()
        session.add(shop.order(id=2))
        session.flush()
        session.rollback()
        session.add_all([shop.order(id=3), shop.order(id=4)])
        session.commit()
    assert [kept(shop, n).name for n in range(3)] == ["shop.receipt"] * 3
    assert shop.count() == 3


@pytest.mark.parametrize("well", [True, False])
def test_rows_pushed_by_a_listener_after_its_own_savepoint_are_written(shop: Shop, well: bool) -> None:
    """The savepoint ends during the commit, which continues."""

    def audit(session: Session) -> None:
        if session.in_nested_transaction():
            return
        with failing(), session.begin_nested():
            receipt.push_in(session, 2)
            if not well:
                raise ZeroDivisionError
        receipt.push_in(session, 3)

    with shop.session() as session:
        receipt.push_in(session, 1)
        event.listen(session, "before_commit", audit)  # after the outbox's own
        session.commit()
    assert shop.count() == (3 if well else 2)


def test_rows_pushed_before_a_close_are_dropped(shop: Shop) -> None:
    """A session that is closed rolls back, and may be used again."""
    with shop.session() as session:
        shop.outbox.add(session, receipt, 1)
        session.close()
        with session.begin_nested():
            shop.outbox.add(session, receipt, 2)
        session.close()
        kept = shop.outbox.add(session, receipt, 3).id
        session.commit()
    assert [row.task_id for row in shop.rows()] == [kept]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "relier.outbox"]


def test_a_push_after_the_last_commit_is_reported_when_the_session_is_closed(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """The row is dropped, like objects of `session.add`, but the caller has its receipt."""
    with shop.session() as session:
        first = shop.outbox.add(session, receipt, 1).id
        session.commit()
        lost = [shop.outbox.add(session, receipt, order).id for order in range(12)]
    assert [row.task_id for row in shop.rows()] == [first]
    (warning,) = told(caplog)
    assert "dropped=12 " in warning
    assert f"shop.receipt {lost[0]}" in warning
    assert lost[11] not in warning
    assert first not in warning


def test_a_rollback_that_was_asked_for_is_not_reported(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with shop.session() as session:
        shop.outbox.add(session, receipt, 1)
        session.rollback()
    with failing(), shop.session() as session:
        shop.outbox.add(session, receipt, 2)
        raise ZeroDivisionError
    with failing(), shop.session() as session, session.begin():
        shop.outbox.add(session, receipt, 3)
        with session.begin_nested():
            shop.outbox.add(session, receipt, 4)
        raise ZeroDivisionError
    shop.place(5)
    assert shop.count() == 1
    assert told(caplog) == []


def test_one_transaction_may_have_thousands_of_pushes(shop: Shop) -> None:
    with shop.session() as session, session.begin():
        ids = [shop.outbox.add(session, receipt, order).id for order in range(6_000)]
    assert [row.task_id for row in shop.rows()] == ids


def test_many_pushes_are_one_insert_and_nothing_else_is_flushed(shop: Shop) -> None:
    statements: list[str] = []
    with shop.session() as session:
        session.autoflush = False
        session.begin()
        event.listen(shop.engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
        for order in range(50):
            shop.outbox.add(session, receipt, order)
        assert statements == []
        session.commit()
    assert len([one for one in statements if "relier_outbox" in one]) == 1
    assert shop.count() == 50


def test_a_session_that_is_used_again_writes_again(shop: Shop) -> None:
    with shop.session() as session:
        for order in (1, 2, 3):
            shop.outbox.add(session, receipt, order)
            session.commit()
    assert shop.count() == 3


def test_a_commit_that_fails_writes_nothing(shop: Shop) -> None:
    shop.place(1)
    with shop.session() as session:
        shop.outbox.add(session, receipt, 1)
        session.add(shop.order(id=1))
        with pytest.raises(IntegrityError):
            session.commit()
    assert shop.count() == 1


def test_connections_write_at_once(shop: Shop) -> None:
    with shop.engine.begin() as connection:
        receipt.push_in(connection, 1)
        with failing(), connection.begin_nested():
            receipt.push_in(connection, 2)
            raise ZeroDivisionError
    with shop.engine.connect() as connection:
        receipt.push_in(connection, 3)
    assert shop.count() == 1


def test_using_raises_if_the_code_inside_did_not_see_the_session(shop: Shop) -> None:
    """For example, a dependency of FastAPI that is not a coroutine: it begins and ends in different contexts of a
    thread pool."""
    with shop.session() as session:
        using = shop.outbox.using(session)
        contextvars.copy_context().run(using.__enter__)
        assert shop.outbox.current() is None
        with pytest.raises(ConfigurationError, match="async def"):
            contextvars.copy_context().run(using.__exit__, None, None, None)
        using = shop.outbox.using(session)
        contextvars.copy_context().run(using.__enter__)
        error = ZeroDivisionError()
        assert contextvars.copy_context().run(using.__exit__, ZeroDivisionError, error, None) is not True
        with shop.outbox.using(session):
            assert shop.outbox.current() is session
        assert shop.outbox.current() is None


def test_scoped_sessions_work(shop: Shop) -> None:
    session = scoped_session(sessionmaker(shop.engine))
    receipt.push_in(session, 1)
    session.commit()
    session.remove()
    assert shop.count() == 1


@pytest.mark.anyio
async def test_async_sessions_and_connections_work(shop: Shop, database: Database) -> None:
    engine = create_async_engine(database.async_url)
    async with AsyncSession(engine) as session, session.begin():
        first = await receipt.apush_in(session, 1)
        second = shop.outbox.add(session, receipt, 2)
    async with engine.begin() as connection:
        third = await shop.outbox.aadd(connection, receipt, 3)
        with pytest.raises(ConfigurationError, match="awaited"):
            receipt.push_in(connection, 4)
    with failing():
        async with AsyncSession(engine) as session, session.begin():
            await receipt.apush_in(session, 5)
            raise ZeroDivisionError
    await engine.dispose()
    assert [row.task_id for row in shop.rows()] == [first.id, second.id, third.id]


def test_a_receipt_waits_for_a_task_that_no_relay_has_sent(shop: Shop) -> None:
    with shop.session() as session, session.begin():
        pushed = receipt.push_in(session, 1)
    assert (pushed.state(), pushed.durability) == (TaskState.NOT_FOUND, None)
    began = time.monotonic()
    with pytest.raises(TaskNotFoundError):
        pushed.result(timeout=0.2)
    assert time.monotonic() - began >= 0.2
    shop.relay().drain()
    assert pushed.state() is TaskState.QUEUED


def test_strict_mode_refuses_a_push_that_would_commit_by_itself(pg_shop: Shop) -> None:
    with pg_shop.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        with pytest.raises(OutsideTransactionError, match="AUTOCOMMIT"):
            receipt.push_in(connection, 1)
        pg_shop.outbox._strict = False
        receipt.push_in(connection, 2)
    session = Session(pg_shop.engine, autobegin=False)
    with pytest.raises(OutsideTransactionError, match="not begun"):
        receipt.push_in(session, 3)
    assert pg_shop.count() == 1


@pytest.mark.anyio
async def test_strict_mode_detects_an_engine_that_commits_by_itself(shop: Shop, database: Database) -> None:
    engine = create_engine(database.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.begin()
        with pytest.raises(OutsideTransactionError, match="AUTOCOMMIT"):
            receipt.push_in(connection, 1)
    for one in (engine, shop.engine.execution_options(isolation_level="AUTOCOMMIT")):
        if one is not engine and database.kind == "sqlite":
            continue  # its listener says BEGIN
        for reads_before in (False, True):
            with Session(one) as session:
                if reads_before:
                    session.execute(select(shop.order.id))
                with pytest.raises(OutsideTransactionError, match="AUTOCOMMIT"):
                    receipt.push_in(session, 2)
                session.commit()
    engine.dispose()
    asynchronous = create_async_engine(database.async_url, isolation_level="AUTOCOMMIT")
    async with asynchronous.connect() as connection:
        with pytest.raises(OutsideTransactionError, match="AUTOCOMMIT"):
            await receipt.apush_in(connection, 3)
    async with AsyncSession(asynchronous) as session:
        with pytest.raises(OutsideTransactionError, match="AUTOCOMMIT"):
            receipt.push_in(session, 4)
        with pytest.raises(OutsideTransactionError, match="AUTOCOMMIT"):
            await receipt.apush_in(session, 5)
    await asynchronous.dispose()
    assert shop.count() == 0


def commits_by_itself(database: Database) -> dict[str, Any]:
    """The driver's option that commits each statement."""
    if database.kind == "sqlite" and sys.version_info < (3, 12):
        pytest.skip("Python's driver of SQLite has the option since 3.12")
    return {"connect_args": {"autocommit": True}}


def test_autocommit_known_only_to_the_connection_is_refused_at_the_commit(shop: Shop, database: Database) -> None:
    """At the push, the session has no connection yet, and a push does not open one."""
    engine = create_engine(database.url, **commits_by_itself(database))
    with Session(engine) as session:
        receipt.push_in(session, 1)
        with pytest.raises(OutsideTransactionError, match="AUTOCOMMIT"):
            session.commit()
        session.rollback()
        session.execute(select(shop.order.id))
        with pytest.raises(OutsideTransactionError, match="AUTOCOMMIT"):
            receipt.push_in(session, 2)
    with engine.connect() as connection, pytest.raises(OutsideTransactionError, match="AUTOCOMMIT"):
        receipt.push_in(connection, 3)
    engine.dispose()
    assert shop.count() == 0


@pytest.mark.anyio
async def test_autocommit_known_only_to_an_async_connection_is_refused(shop: Shop, database: Database) -> None:
    engine = create_async_engine(database.async_url, **commits_by_itself(database))
    async with engine.connect() as connection:
        with pytest.raises(OutsideTransactionError, match="AUTOCOMMIT"):
            await receipt.apush_in(connection, 1)
    await engine.dispose()
    assert shop.count() == 0


def test_strict_mode_accepts_the_drivers_own_transactions(shop: Shop, database: Database) -> None:
    """SQLite's transaction begins at the first write. A connection without a transaction begins one by itself, and
    waits for a commit."""
    engine = create_engine(database.url)
    for one in (engine, shop.engine):
        with one.connect() as connection:
            receipt.push_in(connection, 1)
            connection.rollback()
            receipt.push_in(connection, 2)
            connection.commit()
    engine.dispose()
    assert shop.count() == 2


def test_delays_and_expiries_count_from_the_push(shop: Shop) -> None:
    before = time.time_ns() // 1_000_000
    with shop.session() as session, session.begin():
        receipt.with_options(delay=60, expires=90, priority=3, queue="slow").push_in(session, 1)
    after = time.time_ns() // 1_000_000
    task = kept(shop)
    assert before + 60_000 <= task.eta_ms <= after + 60_000
    assert before + 90_000 <= task.expires_at_ms <= after + 90_000
    assert (task.delay_ms, task.expires_in_ms, task.priority, task.queue) == (0, 0, 3, "slow")
    assert task.tomb_ttl_ms == TOMB_MS


def test_arguments_that_cannot_be_encoded_are_refused_at_the_push(shop: Shop) -> None:
    with shop.session() as session, session.begin():
        with pytest.raises(PayloadTooLargeError):
            shop.outbox.add(session, receipt, 1, "x" * (shop.client.settings.max_payload_bytes + 1))
        with pytest.raises(TypeError):
            shop.outbox.add(session, receipt, object())
        with pytest.raises(ConfigurationError, match="not 3"):
            receipt.push_in(3, 1)  # type: ignore[arg-type]
    assert shop.count() == 0


@pytest.mark.parametrize(("option", "most"), [("task_id", 64), ("queue", 255)])
def test_values_too_long_for_the_table_are_refused_at_the_push(shop: Shop, option: str, most: int) -> None:
    """Otherwise the database would refuse them at the commit, together with everything else."""
    with shop.session() as session, session.begin():
        session.add(shop.order(id=1))
        receipt.with_options(**{option: "x" * most}).push_in(session, 1)  # type: ignore[arg-type]
        with pytest.raises(InvalidSubmissionError, match=f"{option} has {most + 1} characters"):
            receipt.with_options(**{option: "x" * (most + 1)}).push_in(session, 2)  # type: ignore[arg-type]
    assert shop.count() == 1
    assert {name: getattr(shop.outbox.table.c[name].type, "length", None) for name in LONGEST} == LONGEST


def test_a_wrong_schema_is_explained(shop: Shop) -> None:
    shop.outbox.validate_schema(shop.engine)
    with shop.engine.begin() as connection:
        shop.outbox.table.drop(connection)
    with pytest.raises(ConfigurationError, match="does not exist"):
        shop.outbox.validate_schema(shop.engine)
    with shop.engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE relier_outbox (id integer primary key, queue integer, more integer not null)"
        )
    with pytest.raises(ConfigurationError) as told:
        shop.outbox.validate_schema(shop.engine)
    assert "column body" in str(told.value)
    assert "column queue is" in str(told.value)
    assert "column more is not one" in str(told.value)
    assert "index on (dead, due_at, id)" in str(told.value)


def test_a_table_may_have_its_own_schema(pg_shop: Shop) -> None:
    other = Outbox(MetaData(schema="other"), wake=False)
    with pg_shop.engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA other")
    other.table.create(pg_shop.engine)
    other.validate_schema(pg_shop.engine)
    with pg_shop.session() as session, session.begin():
        other.add(session, receipt, 1)
    assert pg_shop.relay(table="other.relier_outbox").drain() == 1
    forget_outbox(other)


def test_without_a_django_project_its_databases_are_refused() -> None:
    pushing = "try: receipt.push_in(None, 1)\nexcept Exception as error: print(repr(error))"
    code = f"from tests.support.outbox_shop import receipt\n{pushing}"
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    told = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert told.startswith("ConfigurationError(")
    assert "push_in with None is for a Django project, and there is none here (ImproperlyConfigured: " in told


def test_push_in_refuses_to_choose_between_two_outboxes(shop: Shop) -> None:
    other = Outbox(shop.metadata, table="second_outbox", wake=False)
    other.table.create(shop.engine)
    with shop.session() as session, session.begin():
        with pytest.raises(ConfigurationError, match="say which"):
            receipt.push_in(session, 1)
        other.add(session, receipt, 1)
        shop.outbox.add(session, receipt, 2)
    forget_outbox(other)
    assert shop.count() == 1


def test_half_of_each_page_is_left_free_on_postgres(pg_shop: Shop) -> None:
    """This holds for every version of SQLAlchemy. Claims need the room."""
    with pg_shop.engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT reloptions FROM pg_class WHERE relname = 'relier_outbox'")
        assert found.scalar_one() == ["fillfactor=50"]
