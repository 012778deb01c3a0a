"""A row that no push has written delays no other row, whatever its columns hold."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from relier import Client
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.row import NewRow
from relier.outbox.sqlalchemy.engines import EngineDatabase
from relier.outbox.table.statements import DeadRowFilter, OutboxTable
from tests.support.databases import Database
from tests.support.outbox_shop import Shop

LEAST, MOST = -(2**63), 2**63 - 1
ODD = [
    "kind = 'Ledger'",
    "kind = 'ledger '",
    "claims = 2147483647",
    "retries = 2147483647",
    f"created_at = {LEAST}",
    f"created_at = {MOST}",
    f"due_at = {LEAST}",
    f"leased_at = {MOST}",
    "body = ''",
    "body = '?'",
    "name = '', queue = '', task_id = ''",
    "order_key = ' '",
]
ODD_IN_SQLITE = [
    "claims = 'x'",
    "retries = 'x', created_at = 'x'",
    "leased_at = 'x'",
    "name = x'ff', task_id = x'ff', queue = x'ff'",
    "order_key = x'ff'",
    "body = 5000000000",
]


def set_first(shop: Shop, odd: str) -> None:
    first = shop.rows()[0].id
    with shop.engine.begin() as connection:
        connection.execute(text(f"UPDATE relier_outbox SET {odd} WHERE id = {first}"))


def sends_the_others(shop: Shop, odd: str, *, ordered: bool) -> None:
    shop.place(10 + ordered)
    set_first(shop, odd)
    others = shop.place(20 + ordered, 30 + ordered)
    relay = shop.relay(ordered=ordered)
    done = relay.turn(ClaimedBatch(relay.relay_id))
    relay.turn(done)
    assert all(shop.state(one) for one in others)
    database = EngineDatabase(shop.engine)
    table = OutboxTable(database.dialect, "relier_outbox")
    with database.begin() as tx:
        table.depth(tx)
        table.kinds(tx)
        table.dead(tx, DeadRowFilter(), 10)
    assert shop.count() <= 1
    with shop.engine.begin() as connection:
        connection.execute(text("DELETE FROM relier_outbox"))


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_row_delays_no_other(shop: Shop, odd: str) -> None:
    sends_the_others(shop, odd, ordered=False)
    sends_the_others(shop, odd, ordered=True)


@pytest.mark.parametrize("odd", ODD_IN_SQLITE)
def test_a_value_of_another_type_delays_no_other_row(sqlite: Database, client: Client, odd: str) -> None:
    """SQLite stores any type in any column."""
    with Shop(sqlite.url, client) as shop:
        sends_the_others(shop, odd, ordered=False)
        sends_the_others(shop, odd, ordered=True)


def test_a_kind_that_differs_in_case_is_a_kind_that_no_relay_takes(shop: Shop) -> None:
    """MySQL considers such kinds equal."""
    shop.place(1, 2)
    set_first(shop, "kind = 'Ledger'")
    database = EngineDatabase(shop.engine)
    with database.begin() as tx:
        found = OutboxTable(database.dialect, "relier_outbox").kinds(tx)
    assert {(one.kind, one.rows) for one in found} == {("Ledger", 1), ("ledger", 1)}


def test_a_body_that_is_nested_too_deeply_becomes_dead(shop: Shop) -> None:
    deep = b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0"
    shop.write(NewRow("t", "ledger", "n", "q", "", deep))
    (sent,) = shop.place(1)
    assert shop.relay().drain() == 1
    assert shop.state(sent)
    (left,) = shop.rows()
    assert left.dead == 1
    assert "PayloadIntegrityError" in left.error
