"""Tables of the outbox and the inbox have transactions, whatever a server's default engine is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, text

from relier import Client
from relier.errors import ConfigurationError
from relier.outbox.sqlalchemy.tables import inbox_table
from tests.support.databases import Database
from tests.support.outbox_shop import Shop, failing, receipt


@pytest.fixture(params=["mariadb", "mysql"])
def without_transactions(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database on a server whose default engine is MyISAM."""
    database: Database = request.getfixturevalue(request.param)
    database.server.execute("SET GLOBAL default_storage_engine = MyISAM")
    yield database
    database.server.execute("SET GLOBAL default_storage_engine = InnoDB")


def test_a_push_that_is_rolled_back_leaves_no_row(without_transactions: Database, client: Client) -> None:
    with Shop(without_transactions.url, client) as shop:
        with failing(), shop.session() as session, session.begin():
            shop.outbox.add(session, receipt, 1)
            session.flush()
            session.begin_nested()  # inserts the row
            raise ZeroDivisionError
        assert shop.count() == 0
        shop.outbox.validate_schema(shop.engine)


def test_marks_are_transactional(without_transactions: Database, client: Client) -> None:
    with Shop(without_transactions.url, client) as shop:
        metadata = MetaData()
        inbox_table(metadata)
        Table("other", metadata, Column("id", Integer, primary_key=True))
        metadata.create_all(shop.engine)
        found = "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = database()"
        with shop.engine.connect() as connection:
            engines = {name: engine for name, engine in connection.execute(text(found))}  # noqa: C416
        assert engines["other"] == "MyISAM"
        assert engines["relier_inbox"] == engines["relier_outbox"] == "InnoDB"


def test_a_table_without_transactions_is_explained(without_transactions: Database, client: Client) -> None:
    with Shop(without_transactions.url, client) as shop:
        with shop.engine.begin() as connection:
            connection.execute(text("ALTER TABLE relier_outbox DROP INDEX ix_relier_outbox_order, ENGINE = MyISAM"))
        with pytest.raises(ConfigurationError, match="its engine is MyISAM"):
            shop.outbox.validate_schema(shop.engine)
