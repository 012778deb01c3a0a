"""No row delays others because of its error text or a similar name, dies because it was released, or is sent under
another row's id."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from relier import Client
from relier.ledger.records import new_task_id
from relier.outbox.publish.target import HELD, SENT, Deferred, Outage, Outcome, SendFailed
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.relay.claim_cursor import ClaimCursor
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.relay import Relay
from relier.outbox.row import NewRow, Row
from relier.outbox.sqlalchemy.engines import EngineDatabase, database_of
from relier.outbox.table.statements import DeadRowFilter, OutboxTable
from tests.support.databases import Database
from tests.support.outbox_shop import Shop, Takes, receipt, row


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("words", ["a\0b", "a\ud800b", "\U0001f600" * 9_000])
def test_an_error_is_stored_whatever_its_text(shop: Shop, words: str, final: bool) -> None:
    shop.write(row(), row())
    poison = shop.rows()[0].task_id
    target = Takes(lambda one: SendFailed(ValueError(words), final) if one.task_id == poison else SENT)
    assert shop.relay(target).drain() == 1
    (left,) = shop.rows()
    assert (left.task_id, left.dead, left.leased_by) == (poison, int(final), "")
    assert "ValueError" in left.error


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_an_error_that_the_tables_character_set_does_not_have(
    request: pytest.FixtureRequest, client: Client, kind: str
) -> None:
    """As in databases that were created years ago."""
    database: Database = request.getfixturevalue(kind)
    database.server.execute(f"ALTER DATABASE {database.name} CHARACTER SET latin1")
    with Shop(database.url, client) as shop:
        shop.write(row(), row())
        poison = shop.rows()[0].task_id
        target = Takes(lambda one: SendFailed(ValueError("Соединение" * 900)) if one.task_id == poison else SENT)
        assert shop.relay(target).drain() == 1
        (left,) = shop.rows()
        assert "\\u0421" in left.error


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_an_error_that_the_database_cannot_encode(postgres: Database, client: Client, driver: str) -> None:
    """PostgreSQL accepts no further statement in the transaction after it has refused the text."""
    name = f"{postgres.name}_latin1"
    postgres.server.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    latin1 = postgres.server.database(name)
    try:
        sends_behind_an_error(latin1.url, client, latin1.url if driver == "psycopg" else latin1.asyncpg_url)
    finally:
        latin1.drop()


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_that_the_connection_cannot_encode(
    request: pytest.FixtureRequest, client: Client, kind: str, is_async: bool
) -> None:
    """The driver raises before the server sees the text."""
    database: Database = request.getfixturevalue(kind)
    url = (database.async_url if is_async else database.url).replace("charset=utf8mb4", "charset=latin1")
    sends_behind_an_error(database.url, client, url)


def sends_behind_an_error(url: str, client: Client, relay_url: str) -> None:
    with Shop(url, client) as shop:
        shop.write(row(), row())
        poison = shop.rows()[0].task_id
        target = Takes(lambda one: SendFailed(ValueError("Соединение")) if one.task_id == poison else SENT)
        relay = Relay(database_of(relay_url), [target], RelayOptions())
        assert relay.drain() == 1
        relay.close()
        (left,) = shop.rows()
        assert (left.task_id, left.leased_by, left.retries) == (poison, "", 1)
        assert "\\u0421" in left.error


@pytest.mark.parametrize("outcome", [None, HELD, Deferred(0.001)])
def test_an_old_row_that_was_given_back_untried_is_sent(shop: Shop, outcome: Outcome | None) -> None:
    """As at a shutdown, or when a limit refused it: the task cannot have run."""
    (task_id,) = shop.place(1)
    shop.change(created_at=0)
    leaving = shop.relay(Takes(SENT))
    for _ in range(3):
        batch = leaving._exchange(ClaimedBatch(leaving.relay_id), 10, probe=False)
        if outcome is not None:
            batch.outcomes = {one.id: outcome for one in batch.rows}
        leaving._exchange(batch, 0)
        shop.change(due_at=0)
    assert shop.relay().drain() == 1
    assert shop.state(task_id)
    assert shop.count() == 0


def test_an_old_row_that_failed_in_an_outage_may_have_run(shop: Shop) -> None:
    shop.place(1)
    shop.change(created_at=0)
    assert shop.relay(Takes(Outage(ConnectionError()))).drain() == 0
    shop.change(due_at=0)
    assert shop.relay().drain() == 0
    assert "MayHaveRunError" in shop.rows()[0].error


def test_a_shutdown_before_anything_was_sent_does_not_count(shop: Shop) -> None:
    shop.place(*range(5))
    shop.change(created_at=0)
    target = Takes(SENT)
    leaving = shop.relay(target)
    batch = leaving._exchange(ClaimedBatch(leaving.relay_id), 10)
    leaving.stop()
    leaving._publish(batch)
    leaving._leave(batch)
    assert target.seen == []
    assert shop.relay().drain() == 5


@pytest.mark.parametrize("other", ["Order-A", "ördér-a"])
def test_an_id_selects_only_the_row_with_exactly_that_id(shop: Shop, other: str) -> None:
    """MySQL considers such ids equal."""
    with shop.session() as session, session.begin():
        for task_id in ("order-a", other):
            receipt.with_options(task_id=task_id).push_in(session, 1)
    shop.change(dead=1)
    database = EngineDatabase(shop.engine)
    rows = OutboxTable(database.dialect, "relier_outbox")
    with database.begin() as tx:
        for wanted in (DeadRowFilter(task_id="order-a"), DeadRowFilter(task_id="order-a", name="shop.receipt")):
            assert [one.task_id for one in rows.dead(tx, wanted, 10)] == ["order-a"]
            assert rows.count_dead(tx, wanted) == 1
        assert rows.count_dead(tx, DeadRowFilter(name="SHOP.receipt")) == 0
        assert rows.purge(tx, DeadRowFilter(task_id="order-a")) == 1
    assert [one.task_id for one in shop.rows()] == [other]


def test_ids_in_an_older_character_set(mysql: Database, client: Client) -> None:
    mysql.server.execute(f"ALTER DATABASE {mysql.name} CHARACTER SET latin1")
    with Shop(mysql.url, client) as shop, shop.session() as session:
        for task_id in ("müller", "muller"):
            receipt.with_options(task_id=task_id).push_in(session, 1)
        session.commit()
        session.execute(text("UPDATE relier_outbox SET dead = 1"))
        session.commit()
        database = EngineDatabase(shop.engine)
        with database.begin() as tx:
            assert OutboxTable("mysql", "relier_outbox").purge(tx, DeadRowFilter(task_id="müller")) == 1
        assert [one.task_id for one in shop.rows()] == ["muller"]


def named(name: str, queue: str = "q") -> NewRow:
    return NewRow(new_task_id(), "ledger", name, queue, "", b"x")


@pytest.mark.parametrize("others", [("shop.Pack", "q"), ("shop.päck", "q"), ("shop.pack ", "q"), ("shop.pack", "Q")])
def test_a_limit_holds_up_no_task_of_a_similar_name(shop: Shop, others: tuple[str, str]) -> None:
    """MySQL considers such names equal."""
    shop.write(named("shop.pack"))
    target = Takes(lambda one: Deferred(3600) if (one.name, one.queue) == ("shop.pack", "q") else SENT)
    relay = shop.relay(target)
    done = relay.turn(relay.turn(ClaimedBatch(relay.relay_id)))
    shop.write(named(*others))
    done = relay.turn(done)
    assert [(one.name, one.queue) for one in done.rows] == [others]


class Away:
    """A relay whose target is unreachable while a limit holds back rows. The test controls its clock and its sleeps."""

    def __init__(self, shop: Shop) -> None:
        self.now, self.slept = 1000.0, list[float]()
        self.outcomes: dict[str, Outcome] = {"slow": Deferred(5), "other": Outage(ConnectionError())}
        self.target = Takes(lambda one: self.outcomes[one.name])
        self.relay = shop.relay(self.target, clock=lambda: self.now, broker_outage_cooldown=30)
        self.relay._sleep = self.slept.append  # type: ignore[method-assign, assignment]
        self.done = ClaimedBatch(self.relay.relay_id)
        shop.write(*(named("slow") for _ in range(50)))
        self.turn(2)
        shop.write(named("other"))
        for _ in range(2):
            assert self.turn(2) == 1
            shop.change(due_at=0)
        assert self.relay.breakers["ledger"].state == "open"
        self.slept.clear()

    def turn(self, times: int = 1) -> int:
        """Return how many rows were tried."""
        before = len(self.target.seen)
        for _ in range(times):
            self.done = self.relay.turn(self.done)
        return len(self.target.seen) - before


@pytest.mark.parametrize("only_refused", [True, False])
def test_one_row_tries_whether_the_target_is_back(shop: Shop, only_refused: bool) -> None:
    """Only one row is tried, not all rows that their limit would admit by now."""
    away = Away(shop)
    if only_refused:
        with shop.engine.begin() as connection:
            connection.execute(text("DELETE FROM relier_outbox WHERE name = 'other'"))
    away.now += 31
    assert away.relay.breakers["ledger"].state == "half-open"
    away.outcomes["slow"] = Outage(ConnectionError())
    assert away.turn() == 1
    assert away.turn() == 0
    away.outcomes = {"slow": SENT, "other": SENT}
    away.now += 31
    shop.change(due_at=0)
    assert away.turn() == 1
    assert away.turn(2) >= 49
    away.turn()
    assert shop.count() == 0


def test_a_relay_sleeps_while_its_target_is_unreachable(shop: Shop) -> None:
    """This holds although the limit would admit the refused rows by now."""
    away = Away(shop)
    away.now += 6
    assert away.turn(3) == 0
    assert away.slept == [24.0] * 3


def test_a_late_commit_waits_for_one_pause_at_most() -> None:
    """A claim that was woken in between does not delay the next full one."""
    now = 0.0
    cursor = ClaimCursor(lambda: now, longest=1.0)
    assert cursor.after(["ledger"]) is None
    now = 0.5  # a full claim that takes long
    cursor.claimed(["ledger"], [Row(1, "t", "ledger", "n", "q", b"", 0, 1, 0, due_at=5)], began=0.0)
    assert cursor.pause(1.0) == 1.0
    now = 1.3
    assert cursor.after(["ledger"]) == (5, 1)
    cursor.claimed(["ledger"], [], began=None)
    assert cursor.pause(1.0) == pytest.approx(0.2)
    now = 1.5
    assert cursor.after(["ledger"]) is None
