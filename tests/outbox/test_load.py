"""Relays next to pushing transactions: neither waits for the other, and no push fails because relays run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, func, select, text
from sqlalchemy.ext.asyncio import create_async_engine

from relier import Client
from relier.ledger.records import Admission, AdmissionLimit, Submission, new_task_id
from relier.outbox.publish.refused_rows import MOST_GROUPS
from relier.outbox.publish.target import SENT, Deferred
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.relay import Relay
from relier.outbox.row import NewRow, new_row
from relier.outbox.sqlalchemy.engines import EngineDatabase, database_of
from tests.support.databases import Database
from tests.support.outbox_shop import Scripted, Shop, Takes, receipt, row
from tests.support.servers import wait_until


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def maria_shop(mariadb: Database, client: Client) -> Iterator[Shop]:
    with Shop(mariadb.url, client) as made:
        yield made


def impatient(url: str) -> Engine:
    """Return connections that wait at most a second for the locks of others."""
    engine = create_engine(url)
    event.listen(engine, "connect", lambda one, _: one.cursor().execute("SET innodb_lock_wait_timeout = 1"))
    return engine


def far_off(shop: Shop, database: Database) -> None:
    """Insert rows that are due much later. MariaDB then knows that the table is large, and uses its index of due
    rows."""
    shop.write(*(row() for _ in range(500)))
    shop.change(due_at=2**60)
    database.server.execute(f"ANALYZE TABLE {database.name}.relier_outbox")


@pytest.mark.parametrize("ordered", [False, True])
def test_a_relay_neither_waits_for_nor_locks_uncommitted_rows(
    maria_shop: Shop, mariadb: Database, ordered: bool
) -> None:
    """This holds even if MariaDB believes that the table is small, in which case it would scan the whole table."""
    maria_shop.write(*(row("k") for _ in range(150)))
    engine = impatient(mariadb.url)
    relay = Relay(EngineDatabase(engine), [Takes(SENT)], RelayOptions(batch_size=100, ordered=ordered))
    with maria_shop.engine.connect() as pushing:
        assert pushing.execute(text("SELECT @@tx_isolation")).scalar_one() == "REPEATABLE-READ"
        maria_shop.outbox.insert(pushing, [row("k") for _ in range(20)])
        assert relay.drain() == 150
        thread = pushing.execute(text("SELECT connection_id()")).scalar_one()
        locked = f"SELECT trx_rows_locked FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = {thread}"
        with engine.connect() as looking:
            assert looking.execute(text(locked)).scalar_one() == 0
        pushing.commit()
    assert relay.drain() == 20
    relay.close()
    engine.dispose()


def test_a_savepoint_that_is_rolled_back_blocks_no_other_push(maria_shop: Shop, mariadb: Database) -> None:
    """At REPEATABLE READ. If a relay had touched its row, the transaction would keep a lock on the gap where all others
    insert, and two such transactions would deadlock."""
    engine = impatient(mariadb.url)
    far_off(maria_shop, mariadb)
    relay = maria_shop.relay(Takes(SENT))
    with engine.connect() as one, engine.connect() as two:
        for pushing in (one, two):
            maria_shop.outbox.insert(pushing, [row()])
            savepoint = pushing.begin_nested()
            maria_shop.outbox.insert(pushing, [row()])
            assert relay.drain() == 0
            savepoint.rollback()
        for pushing in (one, two):
            maria_shop.outbox.insert(pushing, [row()])
        one.commit()
        two.commit()
    assert relay.drain() == 4
    engine.dispose()


def test_no_push_fails_because_relays_run(maria_shop: Shop, mariadb: Database) -> None:
    """At REPEATABLE READ, MariaDB's default, with transactions of several inserts, some of which are rolled back."""
    failed: list[BaseException] = []
    far_off(maria_shop, mariadb)
    relays = [
        Relay(EngineDatabase(create_engine(mariadb.url)), [Takes(SENT)], RelayOptions(batch_size=20, idle_time=0.01))
        for _ in range(3)
    ]

    def push(number: int) -> None:
        for n in range(60):
            try:
                with maria_shop.session() as session, session.begin():
                    for part in range(4):
                        with session.begin_nested() as savepoint:
                            maria_shop.outbox.add(session, receipt, 1000 * number + n)
                            session.flush()
                            if part % 2:
                                savepoint.rollback()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                failed.append(error)

    pushing = [threading.Thread(target=push, args=(n,)) for n in range(6)]
    relaying = [threading.Thread(target=relay.run) for relay in relays]
    for thread in (*relaying, *pushing):
        thread.start()
    for thread in pushing:
        thread.join()
    for relay in relays:
        relay.stop()
    for thread in relaying:
        thread.join()
    rest = maria_shop.relay(Takes(SENT)).drain()
    assert failed == []
    assert sum(relay.counts.published for relay in relays) + rest == 6 * 60 * 2


LEVEL = {"postgresql": "SHOW transaction_isolation", "mysql": "SELECT lower(replace(@@tx_isolation, '-', ' '))"}


@pytest.mark.parametrize("level", ["SERIALIZABLE", "AUTOCOMMIT", None])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_relay_has_an_isolation_level_of_its_own(
    request: pytest.FixtureRequest, kind: str, is_async: bool, level: str | None
) -> None:
    """This does not depend on the level of the engine or the server. At their level, two relays that meet would fail,
    or lock gaps."""
    database: Database = request.getfixturevalue(kind)
    if kind == "postgres":
        database.server.execute(f"ALTER DATABASE {database.name} SET default_transaction_isolation = 'serializable'")
    engine: Any = None
    if level is not None:
        make = create_async_engine if is_async else create_engine
        engine = make(database.async_url if is_async else database.url, isolation_level=level)
    made = database_of(engine or (database.async_url if is_async else database.url))
    for _ in range(2):
        with made.begin() as tx:
            assert tx.run(LEVEL[made.dialect], {})[0][0].lower() == "read committed"
    made.close()
    if isinstance(engine, Engine):
        engine.dispose()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_concurrent_relays_do_not_fail(postgres: Database, client: Client, level: str) -> None:
    """The engine is the application's, with its isolation level."""
    with Shop(postgres.url, client) as shop:
        shop.write(*(row() for _ in range(40)))
        engine = create_engine(postgres.url, isolation_level=level)
        one, two = (Relay(EngineDatabase(engine), [Takes(SENT)], RelayOptions(batch_size=10)) for _ in range(2))
        first, second = one._exchange(ClaimedBatch(one.relay_id), 10), two._exchange(ClaimedBatch(two.relay_id), 10)
        one._publish(first)
        two._publish(second)
        with one._database.begin() as tx:
            tx.run("SELECT count(*) FROM relier_outbox", {})  # its snapshot
            two._exchange(second, 10)
            assert len(one._rows.claim(tx, one.relay_id, 40, 300_000, None)) == 20
            one._closing.close(tx, first)
        engine.dispose()


def limited(limit: AdmissionLimit, name: str = "shop.receipt") -> NewRow:
    return new_row(Submission(id=new_task_id(), name=name, payload=b"x"), Admission((limit,)))


def rows_written(engine: Engine) -> list[int]:
    """Count the row versions that each statement writes from now on. Inserts and deletes write none."""
    written: list[int] = []

    def executed(_: Any, cursor: Any, sql: str, *__: Any) -> None:
        if "UPDATE relier_outbox" in sql:
            written.append(cursor.rowcount)

    event.listen(engine, "after_cursor_execute", executed)
    return written


def test_a_limit_does_not_make_a_relay_write_rows_again_and_again(shop: Shop) -> None:
    """The limit admits one row every 25 ms, after the first ten."""
    shop.client.open()
    limit = AdmissionLimit.per_window("slow", 10, 250)
    shop.write(*(limited(limit) for _ in range(50)), limited(AdmissionLimit.per_window("free", 10, 250), "other"))
    written = rows_written(shop.engine)
    relay = shop.relay(idle_time=0.2)
    running = threading.Thread(target=relay.run)
    running.start()
    wait_until(lambda: shop.accepted() == 51, 60)
    relay.stop()
    running.join()
    assert shop.count() == 0
    assert sum(written) <= 2 * 51
    assert relay.counts.failed == 0


def test_the_limit_of_a_tenant_does_not_hold_up_other_tenants(shop: Shop) -> None:
    """They have the same task and queue, and a backlog of many batches is ahead of them."""
    shop.client.open()
    many, few = (AdmissionLimit.per_window(f"key:tenant:{name}", 3, 3_600_000) for name in ("a", "ab"))
    shop.write(*(limited(many) for _ in range(50)), *(limited(few) for _ in range(3)))
    written = rows_written(shop.engine)
    relay = shop.relay(batch_size=10)
    done = ClaimedBatch(relay.relay_id)
    for _ in range(4):
        done = relay.turn(done)
    assert shop.accepted() == 6
    assert len(relay._refused.ids()) == 7
    assert sum(written) <= 13  # other rows of the first tenant are not even claimed


def test_a_task_with_too_many_limits_waits_as_a_whole(shop: Shop) -> None:
    limits = [f"key:tenant:{i}" for i in range(2 * MOST_GROUPS)]
    shop.write(*(limited(AdmissionLimit.per_window(limit, 1, 1000)) for limit in limits))
    relay = shop.relay(Takes(*(Deferred(1000, limit) for limit in limits)))
    done = relay.turn(relay.turn(ClaimedBatch(relay.relay_id)))
    groups = relay._refused.groups_with([])
    assert len(groups) == MOST_GROUPS + 1
    assert ("shop.receipt", "default", "") in groups
    assert len(relay._refused.ids()) == len(limits)
    shop.write(
        limited(AdmissionLimit.per_window("key:tenant:new", 1, 1000)),
        limited(AdmissionLimit.per_window("other", 1, 1000), "other"),
    )
    assert [one.name for one in relay.turn(done).rows] == ["other"]


def test_rows_refused_by_a_limit_are_released_when_a_relay_stops(shop: Shop) -> None:
    shop.client.open()
    limit = AdmissionLimit.per_window("slow", 1, 60_000)
    shop.write(*(limited(limit) for _ in range(3)))
    ready = threading.Event()
    relay = shop.relay(idle_time=0.01)
    turn = relay.turn

    def turning(done: ClaimedBatch) -> ClaimedBatch:
        batch = turn(done)
        if relay._refused.ids():
            ready.set()
        return batch

    relay.turn = turning  # type: ignore[method-assign]
    running = threading.Thread(target=relay.run)
    running.start()
    assert ready.wait(30)
    assert {one.leased_by for one in shop.rows()} == {relay.relay_id}
    relay.stop()
    running.join()
    left = shop.rows()
    assert [(one.leased_by, one.retries) for one in left] == [("", 0)] * 2
    assert all(10_000 < one.due_at - one.leased_at <= 90_000 for one in left)


def test_rows_that_a_limit_would_accept_now_are_released_when_a_relay_stops(shop: Shop) -> None:
    """The limit would admit them by the time the last batch is sent."""
    clock = Clock()
    shop.write(limited(AdmissionLimit.per_window("slow", 1, 1000), "slow"))
    relay = shop.relay(Scripted(Deferred(5), SENT), clock=clock)
    done = relay.turn(relay.turn(ClaimedBatch(relay.relay_id)))
    shop.write(row())
    done = relay.turn(done)
    clock.now += 6
    relay._leave(done)
    assert [one.leased_by for one in shop.rows()] == [""]


def test_leases_of_rows_that_a_limit_refused_are_renewed(shop: Shop) -> None:
    shop.place(1)
    clock = Clock()
    relay = shop.relay(Scripted(Deferred(1000)), clock=clock)
    done = relay.turn(ClaimedBatch(relay.relay_id))
    done = relay.turn(done)
    assert relay._refused.ids() == [shop.rows()[0].id]
    shop.change(leased_at=5)
    done = relay.turn(done)
    assert shop.rows()[0].leased_at == 5
    clock.now += 101
    relay.turn(done)
    assert shop.rows()[0].leased_at > 5
    assert shop.rows()[0].claims == 1


# --- an old snapshot -------------------------------------------------------------------------------------------------

PAGES = (
    "SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read FROM pg_statio_user_tables "
    "WHERE relname = 'relier_outbox'"
)


def write_many(shop: Shop, many: int) -> None:
    """Write rows, and have the pages that this takes counted at once: PostgreSQL otherwise puts the counts of a
    connection that reported within the last second off until its next transaction, or for ten seconds."""
    with shop.engine.begin() as connection:
        shop.outbox.insert(connection, [row() for _ in range(many)])
        connection.execute(text("SELECT pg_stat_force_next_flush()"))


class PagesRead:
    """Count the pages of the table and its indexes that the one connection of `engine` has read, if no other connection
    uses the table meanwhile: the server counts for all of them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._before = 0

    def _now(self) -> int:
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("SELECT pg_stat_force_next_flush()"))  # reported when this statement ends
            return int(connection.execute(text(PAGES)).scalar_one())

    def since(self) -> int:
        return self._now() - self._before

    def start(self) -> None:
        self._before = self._now()

    def analyze(self) -> None:
        """Do what autovacuum does at any moment."""
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ANALYZE relier_outbox"))


@pytest.mark.slow
def test_a_claim_skips_rows_that_an_old_snapshot_keeps_in_the_index(postgres: Database, client: Client) -> None:
    """A report or a dump prevents PostgreSQL from removing deleted rows, which stand where a claim begins."""
    with Shop(postgres.url, client) as shop, shop.engine.connect() as report:
        report = report.execution_options(isolation_level="REPEATABLE READ")
        report.execute(text("SELECT count(*) FROM orders"))
        with shop.engine.begin() as connection:  # it would read the table as well, at a moment of its own
            connection.execute(text("ALTER TABLE relier_outbox SET (autovacuum_enabled = off)"))
        engine = create_engine(postgres.url, pool_size=1, max_overflow=0)
        relay = Relay(EngineDatabase(engine), [Takes(SENT)], RelayOptions(idle_time=0.001), clock=Clock())
        pages, taken, done = PagesRead(engine), [], ClaimedBatch(relay.relay_id)
        for many in (100, 8000, 100):
            write_many(shop, many)
            pages.start()
            done = relay.turn(done)
            while done.rows:
                done = relay.turn(done)
            taken.append(pages.since())
            pages.analyze()  # the planner now believes that the table is empty
        assert shop.count() == 0
        assert taken[2] < 3 * taken[0], taken
        report.rollback()
        relay.close()
        engine.dispose()


def test_rows_that_commit_late_are_not_missed(shop: Shop) -> None:
    """Such rows are before the relay's cursor. The next full claim finds them."""
    clock = Clock()
    shop.write(*(row() for _ in range(3)))
    relay = shop.relay(Takes(SENT), clock=clock, idle_time=0.001)
    done = relay.turn(ClaimedBatch(relay.relay_id))
    assert len(done.rows) == 3
    shop.write(row())
    table = shop.outbox.table
    with shop.engine.begin() as connection:
        last = connection.execute(select(func.max(table.c.id))).scalar_one()
        connection.execute(table.update().where(table.c.id == last).values(due_at=1))
    done = relay.turn(done)
    assert done.rows == []
    clock.now += 1
    done = relay.turn(done)
    assert [each.id for each in done.rows] == [last]
    relay.turn(done)
    assert shop.count() == 0
