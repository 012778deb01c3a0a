"""Relays beside those who push: nobody waits for the other, and no push fails because relays run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from shop import Scripted, Shop, receipt
from sqlalchemy import Engine, create_engine, event, func, select, text
from sqlalchemy.ext.asyncio import create_async_engine

from databases import Database
from relier import Client
from relier.ledger.records import Submission, new_task_id
from relier.outbox.batch import Batch
from relier.outbox.engines import EngineDatabase, database_of
from relier.outbox.options import RelayOptions
from relier.outbox.relay import Relay
from relier.outbox.row import NewRow, Row, new_row
from relier.outbox.target import SENT, LedgerTarget, Outcome


class Takes(Scripted):
    """A target that takes many rows in one go."""

    parcel = 1000


@pytest.fixture
def maria_shop(mariadb: Database, client: Client) -> Iterator[Shop]:
    with Shop(mariadb.url, client) as made:
        yield made


def impatient(url: str) -> Engine:
    """Connections that wait a second at the most for the locks of others."""
    engine = create_engine(url)
    event.listen(engine, "connect", lambda one, _: one.cursor().execute("SET innodb_lock_wait_timeout = 1"))
    return engine


def row(key: str = "") -> NewRow:
    return NewRow(new_task_id(), "ledger", "n", "q", key, b"x" * 200)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_relay_neither_waits_for_nor_locks_what_is_not_committed(
    maria_shop: Shop, mariadb: Database, ordered: bool
) -> None:
    """However small MariaDB takes the table for: it would read it from one end to the other."""
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


def test_no_push_fails_because_relays_run(maria_shop: Shop, mariadb: Database) -> None:
    """At REPEATABLE READ, MariaDB's default; transactions of several inserts, some of them taken back."""
    failed: list[BaseException] = []
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


def statements_of(engine: Engine) -> list[str]:
    """Every statement that it executes from now on."""
    seen: list[str] = []

    def executed(_: Any, __: Any, sql: str, *___: Any) -> None:
        seen.append(sql)

    event.listen(engine, "before_cursor_execute", executed)
    return seen


@pytest.mark.parametrize("keys", [1, 10])
def test_few_keys_go_out_in_whole_batches(shop: Shop, keys: int) -> None:
    """In order, and in as many passes as without any order."""
    rows = [row(f"k{n % keys}") for n in range(1000)]
    shop.write(*rows)
    target = Takes(SENT)
    relay = shop.relay(target, ordered=True, batch_size=100)
    seen, passes, done = statements_of(shop.engine), 0, Batch(relay.boot)
    while (done := relay._exchange(done, 100)).rows:
        relay._publish(done)
        passes += 1
    assert passes == 10
    assert len(seen) <= 6 * (passes + 1)
    for key in range(keys):
        ids = [one.task_id for one in rows if one.order_key == f"k{key}"]
        assert [one for one in target.seen if one in set(ids)] == ids


def keyed(name: str, key: str, task_id: str = "") -> NewRow:
    return new_row(Submission(id=task_id or new_task_id(), name=name, payload=b"x"), None, key)


class Ledger(LedgerTarget):
    """The ledger, and the order in which rows got there."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.sent: list[str] = []

    def publish(self, rows: Sequence[Row]) -> list[Outcome]:
        outcomes = super().publish(rows)
        self.sent += [row.task_id for row, outcome in zip(rows, outcomes, strict=True) if outcome == SENT]
        return outcomes


def in_order(sent: Sequence[str], rows: Sequence[NewRow], key: str) -> bool:
    ids = [one.task_id for one in rows if one.order_key == key and one.task_id != "bad id"]
    return [one for one in sent if one in set(ids)] == ids


@pytest.mark.parametrize("threads", [1, 3])
def test_a_row_that_fails_holds_back_its_key_alone(pg_shop: Shop, threads: int) -> None:
    """In the middle of a batch that goes in one script, and with several threads."""
    rows = [keyed("n", f"k{n % 3}", "bad id" if n == 30 else "") for n in range(99)]
    pg_shop.write(*rows)
    target = Ledger(Client(pg_shop.client.settings))
    relay = pg_shop.relay(target, ordered=True, max_retries=1, publish_concurrency=threads)
    assert relay.drain() == 33 + 33 + 10
    left = pg_shop.rows()
    assert {one.order_key for one in left} == {"k0"}
    assert [one.retries for one in left] == [1] + [0] * 22
    assert [one.leased_by for one in left] == [""] * 23
    pg_shop.change(due_at=0)
    assert relay.drain() == 22
    assert all(in_order(target.sent, rows, f"k{n}") for n in range(3))
    (bad,) = pg_shop.rows()
    assert bad.dead == 1


def test_two_relays_never_share_a_key(shop: Shop) -> None:
    rows = [row(f"k{n % 2}") for n in range(80)]
    shop.write(*rows)
    one, two = (shop.relay(Takes(SENT), ordered=True, batch_size=10) for _ in range(2))
    first, second = one._exchange(Batch(one.boot), 10), two._exchange(Batch(two.boot), 10)
    assert len(first.rows) == 10
    assert second.rows == []
    one._publish(first)
    one._exchange(first, 0)
    third = two._exchange(second, 10)
    assert [each.task_id for each in third.rows] == [each.task_id for each in rows[10:20]]


def test_rows_of_a_key_that_a_dead_relay_holds_go_out_first(shop: Shop) -> None:
    """It had sent some of them, nobody knows which."""
    rows = [row("k") for _ in range(50)]
    shop.write(*rows)
    gone, other = shop.relay(Takes(SENT), ordered=True, batch_size=20), shop.relay(Takes(SENT), ordered=True)
    gone._publish(gone._exchange(Batch(gone.boot), 20))
    assert other.drain() == 0
    shop.change(leased_at=0)
    assert other.drain() == 50
    seen = next(iter(other._routes.values())).target.seen  # type: ignore[attr-defined]
    assert seen == [each.task_id for each in rows]


def test_a_key_that_waits_does_not_slow_down_the_others(shop: Shop) -> None:
    """However many rows wait behind its first."""
    shop.write(*(row("slow") for _ in range(500)))
    table = shop.outbox.table
    with shop.engine.begin() as connection:
        first = connection.execute(select(func.min(table.c.id))).scalar_one()
        connection.execute(table.update().where(table.c.id == first).values(due_at=2**60))
    shop.write(*(row(f"k{n % 2}") for n in range(200)))
    relay = shop.relay(Takes(SENT), ordered=True, batch_size=100)
    passes, done = 0, Batch(relay.boot)
    while (done := relay._exchange(done, 100)).rows:
        relay._publish(done)
        passes += 1
    assert (passes, relay.counts.published) == (2, 200)


LEVEL = {"postgresql": "SHOW transaction_isolation", "mysql": "SELECT lower(replace(@@tx_isolation, '-', ' '))"}


@pytest.mark.parametrize("level", ["SERIALIZABLE", "AUTOCOMMIT", None])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_relay_has_an_isolation_level_of_its_own(
    request: pytest.FixtureRequest, kind: str, is_async: bool, level: str | None
) -> None:
    """Whatever the engine is set to, or the server: there a relay would fail where it meets another, or lock gaps."""
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
def test_relays_that_meet_do_not_fail(postgres: Database, client: Client, level: str) -> None:
    """The engine is the application's, with its level."""
    with Shop(postgres.url, client) as shop:
        shop.write(*(row() for _ in range(40)))
        engine = create_engine(postgres.url, isolation_level=level)
        one, two = (Relay(EngineDatabase(engine), [Takes(SENT)], RelayOptions(batch_size=10)) for _ in range(2))
        first, second = one._exchange(Batch(one.boot), 10), two._exchange(Batch(two.boot), 10)
        one._publish(first)
        two._publish(second)
        with one._database.begin() as tx:
            tx.run("SELECT count(*) FROM relier_outbox", {})  # its snapshot
            two._exchange(second, 10)
            assert len(one._rows.claim(tx, one.boot, 40, 300_000, None)) == 20
            one._close(tx, first)
        engine.dispose()
