"""Sessions that know their databases only by `binds`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import MetaData, Table, func, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from relier import ConfigurationError
from relier.outbox.inbox.exactly_once import AlreadyRan, ExactlyOnce
from tests.support.databases import Database
from tests.support.inbox_desk import marks, metadata, paid
from tests.support.outbox_shop import Shop, engine_of, receipt


class Elsewhere(DeclarativeBase):
    metadata = MetaData()


class Log(Elsewhere):
    __tablename__ = "log"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def other(sqlite: Database) -> Iterator[Any]:
    engine = engine_of(sqlite.server.fresh().url)
    Elsewhere.metadata.create_all(engine)
    yield engine
    engine.dispose()


def count(engine: Any, table: Table) -> int:
    with engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def base_of(shop: Shop) -> Any:
    return shop.order.__mro__[1]


@pytest.mark.parametrize("bound", ["base", "class", "table", "two"])
def test_a_push_goes_where_its_metadata_is(shop: Shop, other: Any, bound: str) -> None:
    binds: dict[str, dict[Any, Any]] = {
        "base": {base_of(shop): shop.engine},
        "class": {shop.order: shop.engine},
        "table": {shop.order.__table__: shop.engine},
        "two": {base_of(shop): shop.engine, Elsewhere: other},
    }
    with Session(binds=binds[bound]) as session, session.begin():
        session.add(shop.order(id=1))
        receipt.push_in(session, 1)
        with session.begin_nested():
            receipt.push_in(session, 2)
    assert shop.count() == 2
    assert shop.relay().drain() == 2


def test_a_push_that_could_go_to_two_databases_is_refused(shop: Shop, other: Any) -> None:
    with Session(binds={base_of(shop): other, shop.order: shop.engine}) as session:
        with pytest.raises(
            ConfigurationError, match="where table relier_outbox is: tables of the same MetaData are in 2 databases"
        ):
            receipt.push_in(session, 1)
        session.commit()
    with (
        Session(binds={Elsewhere: other}) as session,
        pytest.raises(ConfigurationError, match="it has none for its MetaData"),
    ):
        receipt.push_in(session, 1)
    with Session() as session, pytest.raises(ConfigurationError, match="it has none for its MetaData"):
        receipt.push_in(session, 1)
    assert shop.count() == 0


def test_a_bind_of_the_table_itself_is_used(shop: Shop, other: Any) -> None:
    binds = {base_of(shop): other, shop.outbox.table: shop.engine}
    with Session(binds=binds) as session, session.begin():
        receipt.push_in(session, 1)
    assert shop.count() == 1


def test_an_effect_and_its_mark_go_to_the_same_database(database: Database) -> None:
    engine = engine_of(database.url)
    metadata.create_all(engine)

    def pay() -> None:
        with Session(binds={paid: engine}) as session, ExactlyOnce(session, "t1", 0, str.encode, bytes.decode) as mark:  # type: ignore[arg-type]
            session.execute(insert(paid).values(order_no=1))
            mark.result = "paid"

    pay()
    with pytest.raises(AlreadyRan) as found:
        pay()
    assert found.value.value == "paid"
    assert (count(engine, paid), count(engine, marks)) == (1, 1)
    with Session() as session, pytest.raises(ConfigurationError, match="not bound to a database"):
        ExactlyOnce(session, "t1", 0, str.encode, bytes.decode).__enter__()  # type: ignore[arg-type]
    engine.dispose()
