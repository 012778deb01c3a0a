"""Tables of the outbox and the inbox have transactions, whatever a server's default engine is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.checks import run_checks
from django.db import connection

from relier import Client
from tests.support.databases import Database
from tests.support.django_shop import DjangoShop

TABLES = "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = database()"


@pytest.fixture(params=["mariadb", "mysql"])
def shop(request: pytest.FixtureRequest, client: Client) -> Iterator[DjangoShop]:
    """A project on a server whose default engine is MyISAM, and whose character set leaves room for its keys."""
    database: Database = request.getfixturevalue(request.param)
    database.server.execute(f"ALTER DATABASE {database.name} CHARACTER SET latin1")
    database.server.execute("SET GLOBAL default_storage_engine = MyISAM")
    try:
        with DjangoShop(client, default=database.url) as made:
            yield made.make_tables()
    finally:
        database.server.execute("SET GLOBAL default_storage_engine = InnoDB")


def test_the_migrations_choose_an_engine_with_transactions(shop: DjangoShop) -> None:
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        engines = dict(cursor.fetchall())
    assert engines.pop("django_migrations") == "MyISAM"
    assert engines["relier_inbox"] == engines["relier_outbox"] == "InnoDB"


def test_a_table_without_transactions_is_an_error(shop: DjangoShop) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE relier_inbox ENGINE = MyISAM")
    (found,) = [one for one in run_checks(databases=["default"]) if one.id == "relier.E003"]
    assert "relier_inbox: its engine is MyISAM" in found.msg
