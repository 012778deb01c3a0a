"""After a refusal, a relay in Django asks over a new connection."""

from __future__ import annotations

import pytest
from django.db import connection, connections

from relier import Client
from relier.django.database import DjangoDatabase
from tests.support.databases import Database
from tests.support.django_shop import DjangoShop

SESSION = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT connection_id()"}


def session_of(database: DjangoDatabase) -> int:
    with database.begin() as tx:
        return int(tx.run(SESSION[database.dialect], {})[0][0])


def is_renewed_by_a_refusal() -> bool:
    database = DjangoDatabase()
    before = session_of(database)
    assert session_of(database) == before
    with pytest.raises(Exception, match="no_such_table"), database.begin() as tx:
        tx.run("SELECT 1 FROM no_such_table", {})
    return session_of(database) != before


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "mysql"])
def test_a_refusal_ends_the_connection(request: pytest.FixtureRequest, client: Client, kind: str) -> None:
    database: Database = request.getfixturevalue(kind)
    with DjangoShop(client, default=database.url):
        assert is_renewed_by_a_refusal()


def test_a_refusal_ends_a_connection_of_a_pool(postgres: Database, client: Client) -> None:
    with DjangoShop(client, default=postgres.url):
        connection.close()
        connections["default"].settings_dict["OPTIONS"]["pool"] = {"min_size": 1, "max_size": 1}
        try:
            assert is_renewed_by_a_refusal()
        finally:
            connection.close_pool()
