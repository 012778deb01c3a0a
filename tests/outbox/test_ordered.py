"""Rows with the same order key are sent in order and in whole batches, whatever fails, and with any number of
relays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Engine, event, func, select

from relier import Client
from relier.ledger.records import Submission, new_task_id
from relier.outbox.publish.refused_rows import MOST_GROUPS
from relier.outbox.publish.target import SENT, Deferred, LedgerTarget, Outcome
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.row import NewRow, Row, new_row
from tests.support.databases import Database
from tests.support.outbox_shop import Shop, Takes, row


def statements_of(engine: Engine) -> list[str]:
    """Record every statement that the engine executes from now on."""
    seen: list[str] = []

    def executed(_: Any, __: Any, sql: str, *___: Any) -> None:
        seen.append(sql)

    event.listen(engine, "before_cursor_execute", executed)
    return seen


@pytest.mark.parametrize("keys", [1, 10])
def test_few_keys_go_out_in_whole_batches(shop: Shop, keys: int) -> None:
    """They are sent in order, and in as many passes as without order keys."""
    rows = [row(f"k{n % keys}") for n in range(1000)]
    shop.write(*rows)
    target = Takes(SENT)
    relay = shop.relay(target, ordered=True, batch_size=100)
    seen, passes, done = statements_of(shop.engine), 0, ClaimedBatch(relay.relay_id)
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
    """The ledger, and the order in which it received rows."""

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
def test_a_row_that_fails_holds_back_only_its_key(pg_shop: Shop, threads: int) -> None:
    """The row is in the middle of a batch that one script submits. Several threads publish."""
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
    first, second = one._exchange(ClaimedBatch(one.relay_id), 10), two._exchange(ClaimedBatch(two.relay_id), 10)
    assert len(first.rows) == 10
    assert second.rows == []
    one._publish(first)
    one._exchange(first, 0)
    third = two._exchange(second, 10)
    assert [each.task_id for each in third.rows] == [each.task_id for each in rows[10:20]]


def test_rows_of_a_key_that_a_dead_relay_holds_go_out_first(shop: Shop) -> None:
    """The dead relay had sent some of them, but it is unknown which."""
    rows = [row("k") for _ in range(50)]
    shop.write(*rows)
    gone, other = shop.relay(Takes(SENT), ordered=True, batch_size=20), shop.relay(Takes(SENT), ordered=True)
    gone._publish(gone._exchange(ClaimedBatch(gone.relay_id), 20))
    assert other.drain() == 0
    shop.change(leased_at=0)
    assert other.drain() == 50
    seen = next(iter(other._routes.values())).target.seen  # type: ignore[attr-defined]
    assert seen == [each.task_id for each in rows]


def test_a_key_that_waits_does_not_slow_down_the_others(shop: Shop) -> None:
    """This does not depend on how many rows wait behind its first row."""
    shop.write(*(row("slow") for _ in range(500)))
    table = shop.outbox.table
    with shop.engine.begin() as connection:
        first = connection.execute(select(func.min(table.c.id))).scalar_one()
        connection.execute(table.update().where(table.c.id == first).values(due_at=2**60))
    shop.write(*(row(f"k{n % 2}") for n in range(200)))
    relay = shop.relay(Takes(SENT), ordered=True, batch_size=100)
    passes, done = 0, ClaimedBatch(relay.relay_id)
    while (done := relay._exchange(done, 100)).rows:
        relay._publish(done)
        passes += 1
    assert (passes, relay.counts.published) == (2, 200)


def test_a_first_row_that_is_due_after_all_others_goes_out_first(shop: Shop) -> None:
    """For example, because it was tried before. The rows behind it are due earlier."""
    rows = [row("k") for _ in range(60)]
    shop.write(*rows)
    table = shop.outbox.table
    shop.change(due_at=5)
    with shop.engine.begin() as connection:
        first = connection.execute(select(func.min(table.c.id))).scalar_one()
        connection.execute(table.update().where(table.c.id == first).values(due_at=10))
    target = Takes(SENT)
    assert shop.relay(target, ordered=True, batch_size=20).drain() == 60
    assert target.seen == [each.task_id for each in rows]


def test_a_claim_on_mariadb_reads_the_first_rows_of_a_key_alone(mariadb: Database, client: Client) -> None:
    """The claim does not read the whole key for each row."""
    handlers = "'Handler_read_next', 'Handler_read_prev', 'Handler_read_rnd_next'"

    def rows_read() -> int:
        found = mariadb.server.execute(f"SHOW GLOBAL STATUS WHERE variable_name IN ({handlers})")
        return sum(int(value) for _, value in found)

    with Shop(mariadb.url, client) as shop:
        shop.write(*(row("k") for _ in range(2000)))
        before = rows_read()
        assert shop.relay(Takes(SENT), ordered=True).drain() == 2000
        assert rows_read() - before < 20 * 2000


def test_a_row_refused_by_a_limit_does_not_overtake_a_row_of_its_key(shop: Shop) -> None:
    """A relay has no room in memory for the first row of the key, which is deferred in the table, but has room for the
    second."""
    rows = [keyed(f"task{n}", "") for n in range(MOST_GROUPS)]
    first, second = keyed("no room", "k"), keyed("task0", "k")
    shop.write(*rows, first, second)
    now = 1000.0
    target = Takes(*[Deferred(5)] * (MOST_GROUPS + 2), SENT)
    relay = shop.relay(target, clock=lambda: now, ordered=True)
    done = relay.turn(relay.turn(ClaimedBatch(relay.relay_id)))
    now += 6
    done = relay.turn(done)
    assert target.seen[MOST_GROUPS + 2 :] == [each.task_id for each in rows]
    shop.change(due_at=0)
    relay.turn(relay.turn(done))
    assert target.seen[-2:] == [first.task_id, second.task_id]
    assert shop.count() == 0


def test_rows_of_a_key_that_wait_for_different_times_stay_in_order(shop: Shop) -> None:
    """Rows of one task wait together, for as long as the first of them was told to wait."""
    early, first, second = keyed("a", ""), keyed("b", "k"), keyed("a", "k")
    shop.write(early, first, second)
    now = 1000.0
    target = Takes(Deferred(1), Deferred(5), Deferred(5), SENT)
    relay = shop.relay(target, clock=lambda: now, ordered=True)
    done = relay.turn(relay.turn(ClaimedBatch(relay.relay_id)))
    now += 2
    done = relay.turn(done)
    assert target.seen[3:] == [early.task_id]
    assert relay._refused.pause(60, ["ledger"]) == pytest.approx(3)
    now += 4
    relay.turn(relay.turn(done))
    assert target.seen[4:] == [first.task_id, second.task_id]
    assert shop.count() == 0


@pytest.mark.parametrize("other", ["K", "ḱ", "k "])
@pytest.mark.parametrize("many", [1, 500])
def test_keys_that_are_alike_are_different_keys(shop: Shop, other: str, many: int) -> None:
    """MySQL considers such keys equal. The first row of one key waits with all rows behind it; the other key
    continues."""
    waiting, going = [row("k") for _ in range(many)], [row(other) for _ in range(3)]
    shop.write(*waiting)
    table = shop.outbox.table
    with shop.engine.begin() as connection:
        first = connection.execute(select(func.min(table.c.id))).scalar_one()
        connection.execute(table.update().where(table.c.id == first).values(due_at=2**60))
    shop.write(*going)
    target = Takes(SENT)
    relay = shop.relay(target, ordered=True)
    assert relay.drain() == 3
    shop.change(due_at=0)
    assert relay.drain() == many
    assert target.seen == [each.task_id for each in (*going, *waiting)]
