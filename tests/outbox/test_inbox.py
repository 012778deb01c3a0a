"""A task's effects and the mark that it ran commit together. A second attempt, a zombie and a replay find the mark, and
skip."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import Table, func, insert, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from relier import Client, ConfigurationError, Settings, TaskContext, rl_task
from relier.ledger.records import Claimed, new_task_id
from relier.outbox.inbox.exactly_once import AlreadyRan, ExactlyOnce
from relier.outbox.inbox.marks import Marks
from relier.outbox.sqlalchemy.engines import EngineDatabase
from relier.run.outcome import Done, Failed
from relier.submit.push import NO_OPTIONS, submission_of
from tests.support.databases import Database
from tests.support.inbox_desk import Desk, marks, metadata, paid, where
from tests.support.outbox_shop import engine_of, failing

pytestmark = pytest.mark.anyio


@rl_task(name="inbox.pay")
def pay(order: int, ctx: TaskContext) -> dict[str, int]:
    with Session(where["engine"]) as session, ctx.exactly_once(session) as mark:
        session.execute(insert(paid).values(order_no=order))
        mark.result = {"paid": order}
    return {"paid": order}


@rl_task(name="inbox.apay")
async def apay(order: int, ctx: TaskContext) -> dict[str, int]:
    async with AsyncSession(where["async"]) as session, ctx.exactly_once(session) as mark:
        await session.execute(insert(paid).values(order_no=order))
        mark.result = {"paid": order}
    return {"paid": order}


@rl_task(name="inbox.torn")
def torn(order: int, ctx: TaskContext) -> None:
    with Session(where["engine"]) as session, ctx.exactly_once(session):
        session.execute(insert(paid).values(order_no=order))
        raise ZeroDivisionError


async def test_a_second_attempt_returns_the_first_ones_result(desk: Desk) -> None:
    desk.push(pay, 7)
    claimed = desk.claim()
    first, second = await desk.run(claimed), await desk.run(claimed)
    assert first == second == Done(b'{"paid":7}')
    assert desk.payments() == 1


async def test_a_body_with_an_async_session_takes_effect_once(desk: Desk, database: Database) -> None:
    where["async"] = create_async_engine(database.async_url)
    desk.push(apay, 7)
    claimed = desk.claim()
    assert await desk.run(claimed) == await desk.run(claimed) == Done(b'{"paid":7}')
    assert desk.payments() == 1
    await where["async"].dispose()


async def test_a_block_that_raises_leaves_neither_effect_nor_mark(desk: Desk) -> None:
    desk.push(torn, 7)
    claimed = desk.claim()
    for _ in range(2):
        outcome = await desk.run(claimed)
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, ZeroDivisionError)
    assert desk.payments() == 0


async def test_an_edited_replay_runs_as_a_new_revision_and_a_plain_replay_skips(desk: Desk) -> None:
    sent = desk.push(pay, 7)
    claimed = desk.claim()
    await desk.run(claimed)
    run, ledger = desk.client.run, desk.client.ledger
    run(ledger.bury(claimed.lease, "ValueError", "{}"))
    run(ledger.replay(sent.id, run(ledger.get(sent.id)).record.version, "n1"))
    again = desk.claim()
    assert await desk.run(again) == Done(b'{"paid":7}')
    assert desk.payments() == 1
    run(ledger.bury(again.lease, "ValueError", "{}"))
    version = run(ledger.get(sent.id)).record.version
    edited = submission_of(pay, (8,), {}, NO_OPTIONS, sent.durability, desk.client.settings).payload
    run(ledger.replay(sent.id, version, "n2", payload=edited))
    last = desk.claim()
    assert last.revision == 1
    # the payload was sealed for another id; what matters here is the revision its mark gets
    mark = last_mark(desk, last)
    assert mark


def last_mark(desk: Desk, claimed: Claimed) -> bool:
    """Return whether this attempt would run."""
    ctx = TaskContext(claimed, desk.line)
    with Session(desk.engine) as session, ctx.exactly_once(session):
        return True
    return False


async def test_an_attempt_waits_for_another_that_runs_the_block(desk: Desk, database: Database) -> None:
    """A zombie and the attempt that replaced it: the first to commit has done the work, and the other skips."""
    if database.kind == "sqlite":
        pytest.skip("one writer at a time: the other would wait for the whole database")
    desk.push(pay, 7)
    claimed = desk.claim()
    ctx, heirs = TaskContext(claimed, desk.line), TaskContext(claimed, desk.line)
    waiting, ended = threading.Event(), threading.Event()
    seen: list[Any] = []

    def heir() -> None:
        with Session(desk.engine) as session:
            waiting.set()
            try:
                with heirs.exactly_once(session):
                    seen.append("ran")
            except AlreadyRan as ran:
                seen.append(ran.value)
        ended.set()

    with Session(desk.engine) as session, ctx.exactly_once(session) as mark:
        thread = threading.Thread(target=heir)
        thread.start()
        assert waiting.wait(30)
        session.execute(insert(paid).values(order_no=7))
        mark.result = {"paid": 7}
    assert ended.wait(30)
    thread.join()
    assert seen == [{"paid": 7}]
    assert desk.payments() == 1


async def test_a_transaction_that_has_begun_is_the_callers(desk: Desk) -> None:
    desk.push(pay, 7)
    claimed = desk.claim()
    ctx = TaskContext(claimed, desk.line)
    with failing(), Session(desk.engine) as session, session.begin():
        with ctx.exactly_once(session):
            session.execute(insert(paid).values(order_no=7))
        raise ZeroDivisionError
    assert desk.payments() == 0
    with Session(desk.engine) as session, session.begin(), ctx.exactly_once(session):
        session.execute(insert(paid).values(order_no=7))
    assert desk.payments() == 1
    later = TaskContext(claimed, desk.line)
    with desk.engine.connect() as connection, pytest.raises(AlreadyRan), later.exactly_once(connection):
        pass


async def test_the_wrong_kind_of_with_is_refused(desk: Desk, database: Database) -> None:
    desk.push(pay, 7)
    ctx = TaskContext(desk.claim(), desk.line)
    engine = create_async_engine(database.async_url)
    async with AsyncSession(engine) as session:
        with pytest.raises(ConfigurationError, match="async with"), ctx.exactly_once(session):
            pass
    with Session(desk.engine) as plain_session, pytest.raises(ConfigurationError, match="AsyncSession"):
        async with ctx.exactly_once(plain_session):
            pass
    await engine.dispose()


async def test_marks_are_purged_by_their_age(desk: Desk) -> None:
    database = EngineDatabase(desk.engine)
    table = Marks(database.dialect, "relier_inbox")
    with desk.engine.begin() as connection:
        connection.execute(insert(marks).values(task_id=new_task_id(), revision=0, created_at=5))
    with database.begin() as tx:
        assert table.purge(tx, 10**15) == 0
        assert table.purge(tx, 3_600_000) == 1


async def test_results_are_encrypted_where_there_are_keys(desk: Desk, settings: Settings) -> None:
    keys = settings.replace(encryption_keys="a:" + "A" * 43 + "=")
    client = Client(keys)
    sealed = Desk(client, desk.engine)
    desk.push(pay, 7)
    claimed = sealed.claim()
    with Session(desk.engine) as session, TaskContext(claimed, sealed.line).exactly_once(session) as mark:
        mark.result = {"secret": 1}
    with desk.engine.connect() as connection:
        (raw,) = connection.execute(select(marks.c.result)).scalars()
    assert b"secret" not in raw
    later = TaskContext(claimed, sealed.line)
    with Session(desk.engine) as session, pytest.raises(AlreadyRan) as ran, later.exactly_once(session):
        pass
    assert ran.value.value == {"secret": 1}
    client.close()


def test_a_session_of_several_databases_must_say_which(sqlite: Database) -> None:
    """Otherwise the mark could be in one database, and the effect in another."""
    main, other = engine_of(sqlite.url), engine_of(sqlite.server.fresh().url)
    for engine in (main, other):
        metadata.create_all(engine)

    def once(where: Any) -> ExactlyOnce:
        return ExactlyOnce(where, "t1", 0, lambda _: None, lambda _: None)

    def rows(table: Table) -> list[int]:
        found = []
        for engine in (main, other):
            with engine.connect() as connection:
                found.append(connection.execute(select(func.count()).select_from(table)).scalar_one())
        return found

    with Session(main, binds={paid: other}) as session:
        with pytest.raises(ConfigurationError, match="several databases"), once(session):
            pass
        with once(session.connection(bind_arguments={"clause": paid})):
            session.execute(insert(paid).values(order_no=1))
        session.commit()
    assert (rows(marks), rows(paid)) == ([0, 1], [0, 1])
    with Session(main, binds={paid: main}) as session, once(session):
        session.execute(insert(paid).values(order_no=1))
    assert (rows(marks), rows(paid)) == ([1, 1], [1, 1])
    main.dispose()
    other.dispose()
