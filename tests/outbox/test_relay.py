"""Committed rows become tasks: once each, whatever is unreachable, whichever relay dies, and whatever a row
contains."""

from __future__ import annotations

import asyncio
import logging
import threading
from functools import partial
from pathlib import Path

import aiosqlite
import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

from relier import Client, ConfigurationError, Settings
from relier.errors import RedisConnectionError, TaskNotFoundError
from relier.ledger.pages import read_stats
from relier.ledger.records import Admission, AdmissionLimit, Submission, new_task_id
from relier.outbox.publish.target import SENT, Deferred, LedgerTarget, Outage, SendFailed
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.relay.membership import Membership
from relier.outbox.relay.options import LARGEST_BATCH, RelayOptions
from relier.outbox.relay.relay import Relay
from relier.outbox.relay.to_ledger import relay_to_ledger
from relier.outbox.row import TOMB_MS, NewRow, new_row
from relier.outbox.sqlalchemy.engines import AsyncEngineDatabase, EngineDatabase, database_of, notice_connector
from relier.outbox.table.statements import DeadRowFilter, LiveRelays, OutboxTable
from relier.outbox.wake.postgres_notify import NotifyListener
from relier.states import State
from tests.support.databases import Database
from tests.support.outbox_shop import Scripted, Shop, failing, unique
from tests.support.servers import Boot, wait_until

AWAY = Outage(RedisConnectionError("away"))
POISON = SendFailed(ValueError("poison"))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def due_now(shop: Shop) -> None:
    """Make all deferred rows due, as if time had passed."""
    shop.change(due_at=0)


def test_committed_rows_become_records_under_their_ids(shop: Shop) -> None:
    ids = shop.place(*range(250))
    relay = shop.relay()
    assert relay.drain() == 250
    assert shop.count() == 0
    assert all(shop.state(one) is State.QUEUED for one in ids)


def test_a_row_that_is_sent_again_is_no_second_task(shop: Shop) -> None:
    """This also holds long after the task has ended and was discarded."""
    (one,) = shop.place(1)
    (row,) = shop.rows()
    shop.relay().drain()
    again = NewRow(row.task_id, row.kind, row.name, row.queue, "", bytes(row.body))
    shop.write(again, again)
    shop.relay().drain()
    assert shop.accepted() == 1
    run, ledger = shop.client.run, shop.client.ledger
    run(ledger.cancel(one, run(ledger.get(one)).record.version))
    run(ledger.discard(one, run(ledger.get(one)).record.version))
    with pytest.raises(TaskNotFoundError):
        run(ledger.get(one))
    shop.write(again)
    shop.relay().drain()
    assert shop.accepted() == 1
    assert shop.count() == 0


def test_a_row_whose_id_the_ledger_may_have_forgotten_becomes_dead(shop: Shop) -> None:
    shop.place(1)
    shop.change(created_at=0, claims=1)
    shop.relay().drain()
    (row,) = shop.rows()
    assert row.dead == 1
    assert "MayHaveRunError" in row.error
    assert shop.accepted() == 0
    rows, database = OutboxTable(EngineDatabase(shop.engine).dialect, "relier_outbox"), EngineDatabase(shop.engine)
    with database.begin() as tx:
        assert rows.replay(tx, DeadRowFilter(task_id=row.task_id)) == 1
    assert shop.relay().drain() == 1
    assert TOMB_MS == 7 * 86_400_000


def test_the_same_idempotency_key_twice_is_one_task(shop: Shop) -> None:
    with shop.session() as session, session.begin():
        shop.outbox.add(session, unique, 7)
        shop.outbox.add(session, unique, 7)
    assert shop.relay().drain() == 2
    assert shop.accepted() == 1


def test_a_poison_row_uses_up_its_retries_and_rows_behind_it_are_sent_at_once(shop: Shop) -> None:
    poison = new_row(Submission(id="bad id", name="shop.receipt", payload=b"x"), None)
    shop.write(poison, NewRow(new_task_id(), "ledger", "shop.receipt", "default", "", b"\xc1 no msgpack"))
    ids = shop.place(*range(50))
    relay = shop.relay(max_retries=2)
    assert relay.drain() == 50
    assert all(shop.state(one) is State.QUEUED for one in ids)
    first, second = shop.rows()
    assert (first.retries, first.dead, second.dead) == (1, 0, 1)
    assert "PayloadIntegrityError" in second.error
    for _ in range(2):
        due_now(shop)
        relay.drain()
    first, _ = shop.rows()
    assert first.dead == 1
    assert "InvalidSubmissionError" in first.error
    assert "Traceback" in first.error
    assert (relay.counts.failed, relay.counts.dead) == (2, 2)


def test_backoff_doubles_up_to_its_limit(shop: Shop) -> None:
    shop.place(1)
    relay = shop.relay(Scripted(POISON), backoff_time=100, max_backoff=250, max_retries=9)
    waits = []
    for _ in range(4):
        relay.drain()
        with shop.engine.connect() as connection:
            (row,) = shop.rows()
            waits.append(row.due_at - row.leased_at)
            connection.rollback()
        due_now(shop)
    assert [round(wait / 10_000) for wait in waits] == [10, 20, 25, 25]  # a busy machine adds seconds


def test_an_admission_refusal_defers_by_its_retry_after(shop: Shop) -> None:
    """A refusal is neither a failure nor an outage."""
    admission = Admission((AdmissionLimit.per_window("l", 3, 60_000),))
    tasks = [Submission(id=new_task_id(), name="shop.receipt", payload=b"x") for _ in range(5)]
    shop.write(*(new_row(task, admission) for task in tasks))
    relay = shop.relay()
    assert relay.drain() == 3
    left = shop.rows()
    assert [row.task_id for row in left] == [task.id for task in tasks[3:]]
    assert all((row.retries, row.dead, row.leased_by) == (0, 0, "") for row in left)
    assert all(10_000 < row.due_at - row.leased_at <= 30_000 for row in left)
    assert relay.breakers["ledger"].state == "closed"


def test_an_outage_spends_no_retries_and_opens_the_breaker(shop: Shop) -> None:
    clock = Clock()
    target = Scripted(AWAY, AWAY, AWAY, SENT)
    relay = shop.relay(target, clock=clock, broker_outage_cooldown=30)
    ids = shop.place(*range(5))
    assert relay.drain() == 0
    assert len(target.seen) == 2
    assert relay.breakers["ledger"].state == "open"
    assert [row.retries for row in shop.rows()] == [0] * 5
    assert [row.leased_by for row in shop.rows()] == [""] * 5
    due_now(shop)
    done = relay.turn(ClaimedBatch("x"))
    assert len(target.seen) == 2
    clock.now += 31
    assert relay.breakers["ledger"].state == "half-open"
    done = relay.turn(done)
    assert len(done.rows) == 1
    assert relay.breakers["ledger"].state == "open"
    clock.now += 31
    due_now(shop)
    done = relay.turn(done)
    assert relay.breakers["ledger"].state == "closed"
    relay._exchange(done, 0)
    due_now(shop)
    assert relay.drain() == 4
    assert set(target.seen) == set(ids)
    assert shop.count() == 0


def test_a_row_that_alone_fails_in_outages_is_poison(shop: Shop) -> None:
    bad = shop.place(0)[0]
    shop.place(*range(1, 10))
    relay = shop.relay(Scripted(lambda row: AWAY if row.task_id == bad else SENT), max_retries=1)
    assert relay.drain() == 9
    for expected in (1, 1):
        due_now(shop)
        shop.place(*range(100 * expected + relay.counts.published, 100 * expected + relay.counts.published + 1))
        relay.drain()
    (row,) = shop.rows()
    assert row.dead == 1
    assert "RedisConnectionError" in row.error
    assert relay.breakers["ledger"].state == "closed"


def test_an_unreachable_store_is_an_outage(pg_shop: Shop, settings: Settings) -> None:
    ids = pg_shop.place(*range(150))
    dead = settings.replace(redis_url="redis://127.0.0.1:1", redis_deadline=0.2)
    away = pg_shop.relay(LedgerTarget(Client(dead)))
    assert away.drain() == 0
    assert away.counts.outages == 150
    assert [row.retries for row in pg_shop.rows()] == [0] * 150
    due_now(pg_shop)
    assert pg_shop.relay().drain() == 150
    assert all(pg_shop.state(one) is State.QUEUED for one in ids)


def test_a_lease_that_was_lost_closes_nothing(shop: Shop) -> None:
    """The relay was frozen. Meanwhile, another relay claimed its rows."""
    shop.place(1, 2)
    slow, quick = shop.relay(Scripted(SENT)), shop.relay(Scripted(POISON))
    batch = slow._exchange(ClaimedBatch(slow.relay_id), 10)
    assert len(batch.rows) == 2
    slow._publish(batch)
    assert quick.drain() == 0
    assert quick.counts.failed == 0
    shop.change(leased_at=0)
    quick.drain()
    assert [row.retries for row in shop.rows()] == [1, 1]
    slow._exchange(batch, 0)
    assert [row.retries for row in shop.rows()] == [1, 1]


def test_rows_of_a_dead_relay_are_free(shop: Shop) -> None:
    """The ledger's members show that it is gone. Without them, the stale timeout decides, which the tests above use."""
    shop.place(1)
    gone = shop.relay(Scripted(SENT))
    assert len(gone._exchange(ClaimedBatch(gone.relay_id), 10).rows) == 1
    rows, database = OutboxTable(EngineDatabase(shop.engine).dialect, "relier_outbox"), EngineDatabase(shop.engine)
    with database.begin() as tx:
        assert rows.claim(tx, "other", 10, 300_000, LiveRelays(frozenset({gone.relay_id}), 0)) == []
        assert rows.claim(tx, "other", 10, 300_000, LiveRelays(frozenset({"other"}), 3_600_000)) == []
    shop.change(leased_at=1)
    with database.begin() as tx:
        assert len(rows.claim(tx, "other", 10, 2**60, LiveRelays(frozenset({"other"}), 5))) == 1


def test_a_claim_whose_answer_was_lost_is_made_again(shop: Shop) -> None:
    """The database has stored the lease, but the relay does not know. It finds its rows with the next claim."""
    shop.place(1, 2)
    relay = shop.relay(Scripted(SENT))
    assert len(relay._exchange(ClaimedBatch(relay.relay_id), 10).rows) == 2
    assert len(relay._exchange(ClaimedBatch(relay.relay_id), 10).rows) == 2
    assert relay.drain() == 2


def test_rows_of_another_kind_are_left_alone(shop: Shop) -> None:
    shop.place(1)
    shop.write(NewRow(new_task_id(), "celery", "n", "q", "", b"x"))
    assert shop.relay().drain() == 1
    (row,) = shop.rows()
    assert (row.kind, row.claims, row.retries) == ("celery", 0, 0)


def test_leases_are_renewed_while_rows_are_sent(shop: Shop) -> None:
    shop.place(1, 2, 3)
    clock = Clock()
    held: list[int] = []

    def publish(_: object) -> object:
        held.append(shop.rows()[-1].leased_at)
        shop.change(leased_at=5)
        clock.now += 200
        return SENT

    relay = shop.relay(Scripted(publish), clock=clock)
    relay.drain()
    assert held[1] > 5
    assert held[2] > 5


def test_relays_see_each_other_as_members(client: Client) -> None:
    one, two = (Membership(client.settings, client.scripts, dict) for _ in range(2))
    client.open()
    one.begin()
    two.begin()
    seen = two.members()
    assert seen is not None
    assert seen.ids == {one.relay_id, two.relay_id}
    one.end()
    two._turn()
    assert two.members().ids == {two.relay_id}  # type: ignore[union-attr]
    two.end()


def test_relays_of_another_ledger_do_not_count_as_dead(shop: Shop, boot: Boot, settings: Settings) -> None:
    """For example, each host has its own embedded store. A relay without a heartbeat there may still be alive."""
    ledgers = [Client(settings.replace(redis_url=boot().url)) for _ in range(2)]
    here, neighbour, elsewhere = (
        Membership(ledgers[n].settings, ledgers[n].scripts, lambda: {"table": "relier_outbox"}) for n in (0, 0, 1)
    )
    for one, ledger in ((here, ledgers[0]), (neighbour, ledgers[0]), (elsewhere, ledgers[1])):
        ledger.open()
        one.begin()
    shop.place(1)
    rows, database = OutboxTable(EngineDatabase(shop.engine).dialect, "relier_outbox"), EngineDatabase(shop.engine)
    with database.begin() as tx:
        assert len(rows.claim(tx, here.relay_id, 10, 300_000, here.members())) == 1
    here.end()
    for one in (neighbour, elsewhere):
        one._turn()
    shop.change(leased_at=shop.rows()[0].leased_at - 60_000)
    with database.begin() as tx:
        assert rows.claim(tx, elsewhere.relay_id, 10, 300_000, elsewhere.members()) == []
        assert len(rows.claim(tx, neighbour.relay_id, 10, 300_000, neighbour.members())) == 1
    for one in (neighbour, elsewhere):
        one.end()
    for ledger in ledgers:
        ledger.close()


def test_a_relay_without_a_ledger_is_judged_by_its_leases_alone(shop: Shop, client: Client) -> None:
    client.open()
    member = Membership(client.settings, client.scripts, lambda: {"table": "relier_outbox"})
    member.begin()
    shop.place(1)
    alone = shop.relay(Scripted(SENT))
    assert len(alone._exchange(ClaimedBatch(alone.relay_id), 10).rows) == 1
    rows, database = OutboxTable(EngineDatabase(shop.engine).dialect, "relier_outbox"), EngineDatabase(shop.engine)
    shop.change(leased_at=shop.rows()[0].leased_at - 60_000)
    with database.begin() as tx:
        assert rows.claim(tx, member.relay_id, 10, 300_000, member.members()) == []
        assert len(rows.claim(tx, member.relay_id, 10, 50_000, member.members())) == 1
    member.end()


def test_an_outage_of_the_ledger_and_its_end_are_reported_once(
    boot: Boot, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "relier.outbox")
    server = boot()
    client = Client(settings.replace(redis_url=server.url, heartbeat_ttl=0.4))
    client.open()
    client.close()
    one = Membership(client.settings, client.scripts, dict)
    one._turn()
    server.kill()
    one._turn()
    one._turn()
    (told,) = caplog.records
    assert (told.levelname, told.message.startswith("ledger unreachable: ")) == ("WARNING", True)
    server.start()
    wait_until(lambda: one._turn() or len(caplog.records) > 1)
    assert "ledger available again" in caplog.text
    one.begin()
    one.end()


def test_a_relay_registers_again_with_the_store_despite_an_open_breaker(
    boot: Boot, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """A breaker that stays open after an outage would cost a relay its lease."""
    caplog.set_level(logging.INFO, "relier.outbox")
    server = boot()
    touchy = {"redis_breaker_failures": 1, "redis_breaker_cooldown": 3600.0, "redis_retries": 0}
    client = Client(settings.replace(redis_url=server.url, **touchy))
    client.open()
    client.close()
    one = Membership(client.settings, client.scripts, dict)
    one._turn()
    server.kill()
    one._turn()
    server.start()
    one._turn()
    assert "ledger available again" in caplog.text
    one.begin()
    one.end()


def test_two_relays_share_the_rows(shop: Shop) -> None:
    shop.place(*range(40))
    one, two = shop.relay(batch_size=10), shop.relay(batch_size=10)
    first, second = one._exchange(ClaimedBatch(one.relay_id), 10), two._exchange(ClaimedBatch(two.relay_id), 10)
    assert not {row.id for row in first.rows} & {row.id for row in second.rows}
    one._publish(first)
    two._publish(second)
    one._exchange(first, 0)
    two._exchange(second, 0)
    assert one.drain() == 20
    assert shop.accepted() == 40


def test_rows_not_yet_published_are_released_on_stop(shop: Shop) -> None:
    shop.place(*range(20))
    relay: Relay
    both = threading.Barrier(2, timeout=30)

    def publish(_: object) -> object:
        both.wait()
        relay.stop()
        return SENT

    relay = shop.relay(Scripted(publish), publish_concurrency=2)
    batch = relay._exchange(ClaimedBatch(relay.relay_id), 20)
    relay._publish(batch)
    assert len(batch.outcomes) == 2
    relay._exchange(batch, 0)
    left = shop.rows()
    assert len(left) == 18
    assert all((row.leased_by, row.retries) == ("", 0) for row in left)


def test_a_window_is_not_refilled_when_the_breaker_opens(shop: Shop) -> None:
    shop.place(*range(20))
    target = Scripted(AWAY)
    relay = shop.relay(target, publish_concurrency=2)
    relay.drain()
    assert len(target.seen) <= 4
    assert [row.retries for row in shop.rows()] == [0] * 20


def test_rows_of_one_key_go_out_in_their_order(shop: Shop) -> None:
    rows = [new_row(Submission(id=new_task_id(), name="n", payload=b"x"), None, f"k{i % 2}") for i in range(8)]
    shop.write(*rows)
    seen: list[str] = []

    def publish(row: object) -> object:
        seen.append(row.task_id)  # type: ignore[attr-defined]
        return SENT if len(seen) != 1 else AWAY

    relay = shop.relay(Scripted(publish), ordered=True)
    relay.drain()
    due_now(shop)
    relay.drain()
    sent = seen[1:]
    for key in ("k0", "k1"):
        ids = [row.task_id for row in rows if row.order_key == key]
        assert [one for one in sent if one in ids] == ids


def test_deferred_rows_and_a_refusal_without_a_time(shop: Shop) -> None:
    shop.place(1)
    relay = shop.relay(Scripted(Deferred(0.5), SENT))
    assert relay.drain() == 0
    due_now(shop)
    assert relay.drain() == 1


def test_depth_counts_rows_and_does_not_guess_from_their_ids(shop: Shop) -> None:
    """An old dead row has an id far below those of current rows."""
    shop.place(1)
    shop.change(dead=1, id=1)
    shop.place(2)
    table = shop.outbox.table
    with shop.engine.begin() as connection:
        connection.execute(table.update().where(table.c.dead == 0).values(id=40_000_000))
    shop.place(3, 4)
    rows = shop.relay()._rows
    with EngineDatabase(shop.engine).begin() as tx:
        few, enough = rows.depth(tx, 2), rows.depth(tx, 10)
    assert (few.waiting, few.exact) == (2, False)
    assert (enough.waiting, enough.exact, enough.dead) == (3, True, 1)


def test_depth_is_cheap_and_people_see_the_dead(shop: Shop) -> None:
    shop.place(1, 2, 3)
    database = EngineDatabase(shop.engine)
    rows = OutboxTable(database.dialect, "relier_outbox")
    with database.begin() as tx:
        depth = rows.depth(tx)
    assert (depth.waiting, depth.exact, depth.dead) == (3, True, 0)
    assert 0 <= depth.oldest_age_ms < 60_000
    shop.relay(Scripted(POISON), max_retries=0).drain()
    with database.begin() as tx:
        assert rows.depth(tx).dead == 3
        seen = rows.dead(tx, DeadRowFilter(name="shop.receipt"), 2)
        assert [one.error.splitlines()[0] for one in seen] == ["ValueError: poison"] * 2
        assert rows.dead(tx, DeadRowFilter(name="other"), 2) == []
        assert rows.dead(tx, DeadRowFilter(older_than_ms=3_600_000), 2) == []
        assert rows.count_dead(tx, DeadRowFilter()) == 3
        assert rows.purge(tx, DeadRowFilter(task_id=seen[0].task_id)) == 1
        assert rows.replay(tx, DeadRowFilter(queue="default")) == 2
    assert shop.relay().drain() == 2


def test_a_relay_wakes_when_rows_commit(shop: Shop) -> None:
    shop.client.open()
    shop.outbox._doorbell = None
    woken = threading.Event()
    relay = relay_to_ledger(EngineDatabase(shop.engine), shop.client, RelayOptions(idle_time=60))
    published, turn = threading.Event(), relay.turn

    def turning(done: ClaimedBatch) -> ClaimedBatch:
        batch = turn(done)
        (published if relay.counts.published else woken).set()
        return batch

    relay.turn = turning  # type: ignore[method-assign]
    running = threading.Thread(target=relay.run)
    running.start()
    assert woken.wait(30)
    (one,) = shop.place(1)
    shop.client.run(shop.client.ledger.ring_outbox())
    assert published.wait(30)
    relay.stop()
    running.join(30)
    assert shop.state(one) is State.QUEUED
    assert shop.count() == 0
    assert read_stats(shop.client.run, shop.client.ledger).workers == ()


def test_postgresql_wakes_a_relay_itself(postgres: Database, client: Client) -> None:
    """Without a ledger: NOTIFY is part of the transaction, and PostgreSQL sends it at the commit."""
    with Shop(postgres.url, client) as shop:
        shop.outbox._notify = True
        target = Scripted(SENT, expect=3)
        ready = threading.Event()
        ear = partial(NotifyListener, notice_connector(postgres.url), "relier_outbox")
        relay = Relay(EngineDatabase(shop.engine), [target], RelayOptions(idle_time=60), listener=ear)
        wake = relay.wake
        relay._listener._wake = lambda: (wake(), ready.set())  # type: ignore[union-attr]
        running = threading.Thread(target=relay.run)
        running.start()
        assert ready.wait(30)
        shop.place(1, 2, 3)
        assert target.all_seen.wait(30)
        relay.stop()
        running.join(30)
        assert shop.count() == 0
    with pytest.raises(ConfigurationError, match="for PostgreSQL"):
        notice_connector("sqlite://")


@pytest.mark.anyio
async def test_a_relay_runs_inside_an_application(shop: Shop, database: Database) -> None:
    ids = shop.place(*range(5))
    shop.client.open()
    target = Scripted(SENT, expect=5)
    relay = Relay(database_of(database.async_url), [target], RelayOptions(idle_time=0.05))
    task = asyncio.create_task(relay.arun())
    assert await asyncio.to_thread(target.all_seen.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(target.seen) == sorted(ids)
    assert shop.count() == 0


def test_a_database_that_goes_away_loses_nothing(
    pg_shop: Shop, postgres: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "relier.outbox")
    ids = pg_shop.place(*range(10))
    relay = pg_shop.relay(idle_time=0.01)
    done = relay.turn(ClaimedBatch(relay.relay_id))
    postgres.kill_connections()
    again = relay.turn(done)
    assert again is done
    relay.turn(again)
    away, back = (record.message for record in caplog.records)
    assert away.startswith("database is unreachable: error=")
    assert "SELECT" not in away
    assert "\n" not in away
    assert back == "database is available again"
    assert pg_shop.count() == 0
    assert all(pg_shop.state(one) is State.QUEUED for one in ids)


def test_a_refusal_of_the_database_is_reported_in_one_line(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "relier.outbox")
    relay = shop.relay(Scripted(SENT), idle_time=0.001)
    shop.outbox.table.drop(shop.engine)
    relay.turn(ClaimedBatch(relay.relay_id))
    (told,) = (record.getMessage() for record in caplog.records if record.name == "relier.outbox")
    assert "relier_outbox" in told
    assert "did not answer" not in told
    assert "\n" not in told
    assert "LIMIT" not in told


def test_the_liveness_file_is_touched_by_every_turn(shop: Shop, tmp_path: Path) -> None:
    sign = tmp_path / "alive"
    relay = shop.relay(Scripted(AWAY), liveness_file=str(sign), idle_time=0.001)
    done = relay.turn(ClaimedBatch(relay.relay_id))
    sign.unlink()
    relay.turn(done)
    assert sign.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"batch_size": LARGEST_BATCH + 1},
        {"idle_time": 0},
        {"max_retries": -1},
        {"stale_timeout_seconds": 5},
        {"publish_concurrency": 0},
        {"table": "x; drop"},
    ],
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        RelayOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_largest_batch_is_claimed_and_closed(shop: Shop) -> None:
    shop.write(*(NewRow(str(n), "ledger", "n", "q", "", b"x") for n in range(LARGEST_BATCH)))
    relay = shop.relay(Scripted(SENT), batch_size=LARGEST_BATCH)
    batch = relay.turn(ClaimedBatch(relay.relay_id))
    assert len(batch.rows) == LARGEST_BATCH
    relay._exchange(batch, 0)
    assert shop.count() == 0


def test_an_async_database_rolls_back(sqlite: Database) -> None:
    database = AsyncEngineDatabase(sqlite.async_url)
    with database.begin() as tx:
        tx.change("CREATE TABLE t (id integer)", {})
    with failing(), database.begin() as tx:
        tx.change("INSERT INTO t VALUES (:id)", {"id": 1})
        raise ZeroDivisionError
    with database.begin() as tx:
        assert tx.run("SELECT count(*) FROM t", {})[0][0] == 0
    database.close()


def test_an_async_engine_is_reached_as_its_owner_reaches_it(sqlite: Database) -> None:
    """This includes what the URL does not contain: how the engine connects, and how it prepares each connection."""
    path = sqlite.url.partition("///")[2]
    engine = create_async_engine("sqlite+aiosqlite://", async_creator=lambda: aiosqlite.connect(path))
    event.listen(engine.sync_engine, "connect", lambda one, _: one.execute("PRAGMA cache_size = 77"))
    database = database_of(engine)
    with database.begin() as tx:
        assert tx.run("PRAGMA database_list", {})[0][2] == path
        assert tx.run("PRAGMA cache_size", {}) == [(77,)]
    database.close()


def test_an_async_engine_keeps_its_connect_args(postgres: Database) -> None:
    engine = create_async_engine(postgres.async_url, connect_args={"application_name": "shop"})
    database = database_of(engine)
    with database.begin() as tx:
        assert tx.run("SHOW application_name", {}) == [("shop",)]
    database.close()
