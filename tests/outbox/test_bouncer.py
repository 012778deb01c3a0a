"""Through PgBouncer in transaction mode, where each transaction may use a different connection to the server."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from django.db import transaction
from sqlalchemy import create_engine, func, insert, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from relier import Client, TaskContext, rl_task
from relier.cli.main import rl
from relier.outbox.inbox.exactly_once import AlreadyRan, ExactlyOnce
from relier.outbox.publish.target import Sent
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.relay import Relay
from relier.outbox.sqlalchemy.engines import EngineDatabase, database_of, notice_connector
from relier.outbox.wake.postgres_notify import NotifyListener
from relier.run.outcome import Done
from tests.support.databases import Database, Postgres
from tests.support.django_shop import DjangoShop, Order
from tests.support.inbox_desk import Desk, metadata, paid, where
from tests.support.outbox_shop import Scripted, Shop, failing, receipt
from tests.support.pgbouncer import PgBouncer
from tests.support.servers import wait_until

pytestmark = pytest.mark.databases

# As docs/how-to/outbox.md says it.
PSYCOPG: dict[str, Any] = {"prepare_threshold": None}
ASYNCPG: dict[str, Any] = {
    "statement_cache_size": 0,
    "prepared_statement_cache_size": 0,
    "prepared_statement_name_func": str,
}
ORDERS = range(1, 61)


@pytest.fixture(scope="session")
def bouncer(postgres_server: Postgres) -> Iterator[PgBouncer]:
    server = PgBouncer(postgres_server)
    try:
        yield server.start()
    finally:
        server.end()


@pytest.fixture
def bounced(bouncer: PgBouncer, postgres: Database) -> Database:
    """A PgBouncer with two connections to the server, each with its own prepared statements."""
    fresh = bouncer.behind(postgres)
    address = fresh.url.replace("+psycopg", "")
    with psycopg.connect(address) as one, psycopg.connect(address) as other:
        found = [connection.execute("SELECT pg_backend_pid()").fetchone() for connection in (one, other)]
    assert found[0] != found[1]
    return fresh


# --- relays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["psycopg", "psycopg?prepare_threshold=0", "asyncpg"])
def test_relays_by_a_url_send_every_row(pg_shop: Shop, bounced: Database, options: str) -> None:
    driver, _, more = options.partition("?")
    url = f"{bounced.url.replace('psycopg', driver)}?{more}"
    pg_shop.place(*ORDERS)
    target = Scripted(Sent())
    relays = [Relay(database_of(url), [target], RelayOptions(batch_size=2)) for _ in range(3)]
    batches = [ClaimedBatch(relay.relay_id) for relay in relays]
    while pg_shop.count():
        for i, relay in enumerate(relays):  # `turn` would wait for the database to come back
            batches[i] = relay._exchange(batches[i], 2)
            relay._publish(batches[i])
    for relay in relays:
        relay.close()
    assert len(target.seen) == len(ORDERS)


def test_a_relay_has_no_failed_pass(pg_shop: Shop, bounced: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "relier.outbox")
    pg_shop.place(*ORDERS)
    target = Scripted(Sent(), expect=len(ORDERS))
    relay = Relay(database_of(bounced.url), [target], RelayOptions(batch_size=2))
    running = threading.Thread(target=relay.run)
    running.start()
    assert target.all_seen.wait(30)
    relay.stop()
    running.join(30)
    assert pg_shop.count() == 0
    assert caplog.records == []


def test_prepared_statements_behind_a_pooler_cause_a_warning(
    pg_shop: Shop, bounced: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """The application's own engine keeps the application's options, so Relier only warns."""
    caplog.set_level(logging.WARNING, "relier.outbox")
    engines = [create_engine(bounced.url, connect_args={"prepare_threshold": 0}) for _ in range(2)]
    relays = [Relay(EngineDatabase(one), [Scripted(Sent())], RelayOptions(idle_time=0.001)) for one in engines]
    for _ in range(10):
        for relay in relays:
            relay.turn(ClaimedBatch(relay.relay_id))
    assert "turn prepared statements off" in caplog.text
    for relay, engine in zip(relays, engines, strict=True):
        relay.close()
        engine.dispose()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("psycopg?connect_timeout=soon", "connect_timeout"),
        ("psycopg?no_such_option=1", 'invalid connection option "no_such_option"'),
        ("asyncpg?command_timeout=soon", "command_timeout"),
        ("asyncpg?no_such_option=1", "no_such_option"),
    ],
)
@pytest.mark.parametrize("command", ["relay", "stats"])
def test_an_option_that_no_driver_takes_is_not_an_outage(pg_shop: Shop, more: str, says: str, command: str) -> None:
    driver, _, options = more.partition("?")
    url = pg_shop.engine.url.set(drivername=f"postgresql+{driver}").render_as_string(hide_password=False)
    told = CliRunner().invoke(rl, ["outbox", command, "--database", f"{url}?{options}"])
    assert told.exit_code == 2, told.output
    assert says in told.stderr
    assert "see that it runs" not in told.stderr
    assert "Traceback" not in told.stderr


# --- notices ---------------------------------------------------------------------------------------------------------


def test_a_relay_that_cannot_receive_notices_polls(
    pg_shop: Shop, bounced: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "relier.outbox")
    ear = NotifyListener(notice_connector(bounced.url), "relier_outbox", lambda: None)
    ear.start()
    ear.join(30)
    assert not ear.is_alive()
    assert not ear.is_listening
    (told,) = (record.message for record in caplog.records)
    assert "so the relay polls" in told
    relay = Relay(EngineDatabase(pg_shop.engine), [Scripted(Sent())], listener=partial(_given, ear))
    relay._idle_turns = 30
    assert relay._pause() == RelayOptions().idle_time / 5
    relay.close()


def test_notices_arrive_through_a_pool_in_session_mode(
    postgres_server: Postgres, postgres: Database, pg_shop: Shop
) -> None:
    pool = PgBouncer(postgres_server, "session").start()
    wakes: list[int] = []
    pg_shop.outbox._notify = True
    try:
        ear = NotifyListener(notice_connector(pool.behind(postgres).url), "relier_outbox", lambda: wakes.append(1))
        ear.start()
        wait_until(lambda: wakes == [1])
        assert ear.is_listening
        pg_shop.place(1)
        wait_until(lambda: wakes == [1, 1])
        ear.end()
        ear.join(30)
    finally:
        pool.end()


def _given(ear: NotifyListener, _: Any) -> NotifyListener:
    return ear


# --- producers -------------------------------------------------------------------------------------------------------


def test_sessions_push_exactly_the_committed_rows(pg_shop: Shop, bounced: Database) -> None:
    engines = [create_engine(bounced.url, connect_args=PSYCOPG) for _ in range(2)]
    for order in range(20):
        with Session(engines[order % 2]) as session, session.begin():
            session.add(pg_shop.order(id=order))
            receipt.push_in(session, order)
            with failing(), session.begin_nested():
                receipt.push_in(session, -order)
                raise ZeroDivisionError
        with failing(), Session(engines[order % 2]) as session, session.begin():
            receipt.push_in(session, order)
            raise ZeroDivisionError
    assert pg_shop.count() == 20
    for engine in engines:
        engine.dispose()


@pytest.mark.anyio
async def test_async_sessions_push_exactly_the_committed_rows(pg_shop: Shop, bounced: Database) -> None:
    engines = [create_async_engine(bounced.asyncpg_url, connect_args=ASYNCPG) for _ in range(2)]
    for order in range(20):
        async with AsyncSession(engines[order % 2]) as session, session.begin():
            session.add(pg_shop.order(id=order))
            await receipt.apush_in(session, order)
    assert pg_shop.count() == 20
    for engine in engines:
        await engine.dispose()


# --- effects ---------------------------------------------------------------------------------------------------------


@rl_task(name="bouncer.pay")
def pay(order: int, ctx: TaskContext) -> int:
    with Session(where["engine"]) as session, ctx.exactly_once(session) as mark:
        session.execute(insert(paid).values(order_no=order))
        mark.result = order
    return order


@rl_task(name="bouncer.apay")
async def apay(order: int, ctx: TaskContext) -> int:
    async with AsyncSession(where["async"]) as session, ctx.exactly_once(session) as mark:
        await session.execute(insert(paid).values(order_no=order))
        mark.result = order
    return order


@pytest.mark.anyio
async def test_concurrent_attempts_have_one_effect(postgres: Database, bounced: Database, client: Client) -> None:
    direct = create_engine(postgres.url)
    metadata.create_all(direct)
    where["engine"] = create_engine(bounced.url, connect_args=PSYCOPG)
    where["async"] = create_async_engine(bounced.asyncpg_url, connect_args=ASYNCPG)
    desk = Desk(client, direct)
    for order in range(10):
        for task in (pay, apay):
            desk.push(task, order)
            claimed = desk.claim()
            outcomes = await asyncio.gather(*(desk.run(claimed) for _ in range(2)))
            assert outcomes == [Done(str(order).encode())] * 2
    with direct.connect() as connection:
        assert connection.execute(select(func.count()).select_from(paid)).scalar_one() == 20
    where["engine"].dispose()
    await where["async"].dispose()
    direct.dispose()


def test_django_needs_no_option(bounced: Database, client: Client) -> None:
    with DjangoShop(client, default=bounced.url) as shop:
        shop.make_tables()
        for order in range(20):
            with transaction.atomic():
                Order.objects.create(id=order)
                receipt.push_in("default", order)
            with ExactlyOnce("default", f"{order:032}", 0, lambda _: None, lambda _: None):
                Order.objects.create(id=100 + order)
        with pytest.raises(AlreadyRan), ExactlyOnce(None, f"{1:032}", 0, lambda _: None, lambda _: None):
            Order.objects.create(id=200)
        assert shop.relay(batch_size=2).drain() == 20
        assert len(shop.orders()) == 40
