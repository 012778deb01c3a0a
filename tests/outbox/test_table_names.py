"""Tables whose names must be quoted work in every statement. Names that are not supported are refused where they are
given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import MetaData, func, insert, select, text
from sqlalchemy.orm import Session

from relier import Client, ConfigurationError
from relier.outbox import Outbox, RelayOptions, inbox_table, outbox_table
from relier.outbox.inbox.exactly_once import AlreadyRan, ExactlyOnce
from relier.outbox.publish.target import SendFailed
from relier.outbox.push import forget_outbox
from relier.outbox.sqlalchemy.engines import notice_connector
from relier.outbox.wake.postgres_notify import NotifyListener
from tests.outbox.test_rl_outbox import run
from tests.support.databases import Database
from tests.support.inbox_desk import paid
from tests.support.outbox_shop import Scripted, Shop, engine_of, receipt
from tests.support.servers import wait_until

NAMES = ["relier_outbox", "Shop_Outbox", "shop outbox", "order", "shop-outbox$1", "2nd", "{schema}.Shop Outbox"]


@pytest.fixture(params=NAMES)
def named(request: pytest.FixtureRequest, database: Database, client: Client) -> Iterator[tuple[Shop, str]]:
    """A shop whose outbox table has that name."""
    with Shop(database.url, client) as shop:
        schema = {"mysql": database.name, "sqlite": "main"}.get(database.kind, "Branch 7")
        name = request.param.format(schema=schema)
        if database.kind == "postgresql":
            with shop.engine.begin() as connection:
                connection.execute(text(f'CREATE SCHEMA "{schema}"'))
        metadata = MetaData()
        forget_outbox(shop.outbox)
        shop.outbox = Outbox(metadata, table=name, wake=False, notify=True)
        inbox_table(metadata, f"{name} inbox")
        metadata.create_all(shop.engine)
        yield shop, name


def test_every_operation_works_with_an_unusual_table_name(named: tuple[Shop, str]) -> None:
    shop, name = named
    shop.client.open()
    shop.outbox.validate_schema(shop.engine)
    ids = shop.place(1, 2, 3)
    assert shop.relay(Scripted(SendFailed(ValueError("poison"))), table=name, max_retries=0).drain() == 0
    assert "Dead: 3." in run(shop, "stats", "--table", name).output
    assert "3 of 3 dead rows." in run(shop, "dead", "--table", name).output
    assert "1 dead row deleted." in run(shop, "purge", ids[0], "--yes", "--table", name).output
    assert "2 dead rows replayed." in run(shop, "replay", "--all", "--yes", "--table", name).output
    assert shop.relay(table=name, ordered=True).drain() == 2
    assert shop.count() == 0


def test_a_mark_is_found_again(named: tuple[Shop, str]) -> None:
    shop, name = named
    marks = f"{name} inbox"
    paid.create(shop.engine)

    def pay() -> Any:
        with Session(shop.engine) as session, once(session) as mark:
            session.execute(insert(paid).values(order_no=1))
            mark.result = "paid"

    def once(session: Session) -> ExactlyOnce:
        return ExactlyOnce(session, "a" * 32, 1, str.encode, lambda raw: raw, table=marks)

    pay()
    with pytest.raises(AlreadyRan) as found:
        pay()
    assert found.value.value == b"paid"
    with shop.engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(paid)).scalar_one() == 1
    forgotten = run(shop, "forget", "--older-than", "0s", "--yes", "--table", name, "--inbox", marks)
    assert "1 mark deleted." in forgotten.output


@pytest.mark.parametrize("name", ["Shop Outbox", "order", "public.Shop_Outbox"])
def test_a_commit_is_noticed(postgres: Database, client: Client, name: str) -> None:
    engine, metadata = engine_of(postgres.url), MetaData()
    outbox = Outbox(metadata, table=name, wake=False, notify=True)
    metadata.create_all(engine)
    wakes: list[int] = []
    ear = NotifyListener(notice_connector(postgres.url), name, lambda: wakes.append(1))
    ear.start()
    wait_until(lambda: wakes == [1])
    with Session(engine) as session, session.begin():
        outbox.add(session, receipt, 1)
    wait_until(lambda: wakes == [1, 1])
    ear.end()
    ear.join(30)
    forget_outbox(outbox)
    engine.dispose()


@pytest.mark.parametrize(
    "name", ["", " ", "outbox ", "a.b.c", ".b", "a.", 'a"b', "a`b", "a'b", "a:b", "a%b", "a;b", "ä", "a\0b", "x" * 53]
)
def test_an_invalid_table_name_is_refused_at_once(name: str) -> None:
    for define in (
        lambda: Outbox(MetaData(), table=name),
        lambda: outbox_table(MetaData(), name),
        lambda: inbox_table(MetaData(), name),
        lambda: RelayOptions(table=name),
    ):
        with pytest.raises(ConfigurationError, match="a table's name"):
            define()
