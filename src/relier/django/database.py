"""The database of a relay, from Django's settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import DEFAULT_DB_ALIAS

from relier.errors import ConfigurationError
from relier.outbox.table.refusals import must_reconnect
from relier.version import how_to_install

NAME = re.compile(r"(?<![:\w]):([A-Za-z_]\w*)")
READ_COMMITTED = "read committed"


class DjangoTransaction:
    """Runs statements in the current transaction of a Django connection."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection

    def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(translated(sql), values)
            return cursor.fetchall() if cursor.description else []

    def change(self, sql: str, values: Mapping[str, Any]) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute(translated(sql), values)
            return int(cursor.rowcount)


class DjangoDatabase:
    """A database by its alias. Each thread has its own connection."""

    def __init__(self, alias: str = DEFAULT_DB_ALIAS) -> None:
        if alias not in connections:
            raise ConfigurationError(
                f"DATABASES has no {alias!r}, only {', '.join(repr(one) for one in connections)}; use one of them"
            )
        self.alias = alias
        self.dialect: str = connections[alias].vendor

    @contextmanager
    def begin(self) -> Iterator[DjangoTransaction]:
        connection = connections[self.alias]
        try:
            with self._atomic(connection):
                yield DjangoTransaction(connection)
        except Exception as error:
            if must_reconnect(self.dialect, error):
                if is_pooled(connection) and connection.connection is not None:
                    connection.connection.close()  # or the pool would keep it
                self.leave_thread()
            raise
        finally:
            # A pool has few connections, perhaps fewer than this process has relays. They take turns.
            if is_pooled(connection):
                self.leave_thread()

    @contextmanager
    def _atomic(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        if not connection.settings_dict["CONN_MAX_AGE"]:
            connection.close_at = None  # CONN_MAX_AGE = 0 would open a new connection for each turn of a relay
        connection.close_if_unusable_or_obsolete()  # the database may have restarted
        with transaction.atomic(using=self.alias, durable=True):
            # At a higher level, MySQL locks the gaps between rows, and pushes would wait for a relay. PostgreSQL fails
            # one of two relays that meet. Django sets MySQL's level; PostgreSQL's may come from the role or the server.
            if self.dialect == "postgresql" or (
                self.dialect == "mysql" and connection.isolation_level != READ_COMMITTED
            ):
                with connection.cursor() as cursor:
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            yield

    def leave_thread(self) -> None:
        """Close this thread's connection, or give it back to its pool."""
        if not connections[self.alias].in_atomic_block:
            connections[self.alias].close()

    def close(self) -> None:
        self.leave_thread()


def is_pooled(connection: BaseDatabaseWrapper) -> bool:
    """Return whether `OPTIONS` has a pool of connections, which Django supports on PostgreSQL and Oracle."""
    return bool(connection.settings_dict["OPTIONS"].get("pool"))


@lru_cache(512)
def translated(sql: str) -> str:
    """Translate `:name` parameters to Django's style."""
    return NAME.sub(r"%(\1)s", sql.replace("%", "%%"))


def notice_connector(alias: str) -> Callable[[], Any]:
    """Return the function with which a `NotifyListener` connects to a database of the settings."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise ConfigurationError(f"--listen is for PostgreSQL, not for {connection.display_name}; remove the option")
    try:
        import psycopg  # noqa: F401 - Django uses psycopg 3 if it is installed
    except ImportError as error:
        raise ConfigurationError(f"{error}; --listen needs psycopg 3: {how_to_install('postgres')}") from error

    def connect() -> Any:
        alone = connection.copy()
        alone.settings_dict["OPTIONS"].pop("pool", None)  # a pool would not get back a connection that is closed here
        made = alone.get_new_connection(alone.get_connection_params())
        made.autocommit = True
        return made

    return connect
