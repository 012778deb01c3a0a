"""The database of a relay or a command, through an engine of SQLAlchemy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, TextClause, create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import StaticPool

from relier.errors import ConfigurationError
from relier.outbox.sqlalchemy.tables import dialect_of
from relier.outbox.table.refusals import must_reconnect
from relier.version import how_to_install

R = TypeVar("R")

UNPREPARED: dict[str, dict[str, Any]] = {
    "psycopg": {"prepare_threshold": None},
    # `str` makes an empty name: the unnamed statement, which the next one replaces.
    "asyncpg": {"statement_cache_size": 0, "prepared_statement_cache_size": 0, "prepared_statement_name_func": str},
}


def isolation_of(dialect: str) -> dict[str, Any]:
    """Return the options that give a relay's transactions their own isolation level, whatever the engine, the role or
    the server has set for others. At a higher level MySQL locks the gaps between rows, so that pushes would wait for a
    relay, and PostgreSQL fails one of two relays that meet. SQLite has one level only."""
    return {} if dialect == "sqlite" else {"isolation_level": "READ COMMITTED"}


@lru_cache(512)
def statement(sql: str) -> TextClause:
    return text(sql)


def unprepared(url: URL) -> dict[str, Any]:
    """Return the connect arguments that turn off prepared statements, whatever the URL says.

    Behind PgBouncer in transaction mode, the next transaction may use another server connection, on which the
    statements were not prepared. Doing without them costs 0.5 ms per claim, and one claim takes a hundred rows.
    """
    if url.get_backend_name() != "postgresql":
        return {}
    return UNPREPARED.get(url.get_driver_name(), {})


class EngineTransaction:
    """One transaction of an engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
        return self._connection.execute(statement(sql), values).all()

    def change(self, sql: str, values: Mapping[str, Any]) -> int:
        return self._connection.execute(statement(sql), values).rowcount


class EngineDatabase:
    """A database reached through the user's engine, or through an engine of its own made from a URL."""

    def __init__(self, engine: Engine | str) -> None:
        self._owned = isinstance(engine, str)
        made = create_engine(engine, connect_args=unprepared(make_url(engine))) if isinstance(engine, str) else engine
        self.dialect = dialect_of(made.dialect.name)
        self._engine = made.execution_options(**isolation_of(self.dialect))

    @contextmanager
    def begin(self) -> Iterator[EngineTransaction]:
        with self._engine.connect() as connection:
            try:
                with connection.begin():
                    yield EngineTransaction(connection)
            except Exception as error:
                if must_reconnect(self.dialect, error):
                    connection.invalidate()
                raise

    def leave_thread(self) -> None: ...

    def close(self) -> None:
        if self._owned:
            self._engine.dispose()


class AsyncEngineDatabase:
    """A database reached through an async driver, on its own event loop, which the relay's thread runs.

    Connections belong to a loop, so the user's engine is created again with a copy of its pool. The pool knows how to
    connect and how to prepare each connection. Listeners for statements and transactions are not copied.
    """

    def __init__(self, engine: AsyncEngine | str) -> None:
        self._runner = asyncio.Runner()
        if isinstance(engine, str):
            arguments = unprepared(make_url(engine))
            self._engine = create_async_engine(engine, poolclass=StaticPool, connect_args=arguments)
        else:
            made = create_async_engine(engine.url, pool=engine.sync_engine.pool.recreate())
            self._engine = made.execution_options(**engine.get_execution_options())
        self.dialect = dialect_of(self._engine.dialect.name)
        self._engine = self._engine.execution_options(**isolation_of(self.dialect))

    @contextmanager
    def begin(self) -> Iterator[AsyncTransaction]:
        if self._waits_elsewhere:
            raise TimeoutError("the database has not answered an earlier call yet")
        run = self._runner.run
        connection = run(self._open())
        try:
            yield AsyncTransaction(connection, run)
        except BaseException as error:
            run(connection.rollback())
            if must_reconnect(self.dialect, error):
                run(connection.invalidate())
            raise
        else:
            run(connection.commit())
        finally:
            run(connection.close())

    async def _open(self) -> AsyncConnection:
        return await self._engine.connect()

    @property
    def _waits_elsewhere(self) -> bool:
        """Return whether another thread still waits for the database, such as that of the check at the start."""
        return self._runner.get_loop().is_running()

    def leave_thread(self) -> None: ...

    def close(self) -> None:
        if not self._waits_elsewhere:
            self._runner.run(self._engine.dispose())
            self._runner.close()


class AsyncTransaction:
    """One transaction of an async engine."""

    def __init__(self, connection: AsyncConnection, run: Callable[[Any], Any]) -> None:
        self._connection = connection
        self._run = run

    def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
        return self._run(self._connection.execute(statement(sql), values)).all()  # type: ignore[no-any-return]

    def change(self, sql: str, values: Mapping[str, Any]) -> int:
        return int(self._run(self._connection.execute(statement(sql), values)).rowcount)


def notice_connector(url: str) -> Callable[[], Any]:
    """Return the function with which a `NotifyListener` connects to the database of a URL."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "postgresql":
        raise ConfigurationError(f"--listen is for PostgreSQL, not for {parsed.get_backend_name()}; remove the option")
    try:
        import psycopg
    except ImportError as error:
        raise ConfigurationError(f"{error}; for --listen, {how_to_install('postgres')}") from error
    address = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
    return lambda: psycopg.connect(address, autocommit=True)


def _read(url: str) -> URL:
    try:
        return make_url(url)
    except ValueError as error:  # raised by int(), which does not mention the URL
        raise ConfigurationError("the port in the database URL is not a number; write …@host:5432/name") from error


def database_of(given: Engine | AsyncEngine | str) -> EngineDatabase | AsyncEngineDatabase:
    """Return the database of an engine or a URL, for a blocking or an async driver."""
    if isinstance(given, AsyncEngine):
        return AsyncEngineDatabase(given)
    if isinstance(given, str) and _read(given).get_dialect().is_async:
        return AsyncEngineDatabase(given)
    return EngineDatabase(given)


def is_refused_by_driver(error: Exception) -> bool:
    """Return whether the driver refused an option in the URL or its value, before it contacted any database."""
    cause = getattr(error, "orig", None) or error
    return isinstance(error, ProgrammingError) or isinstance(cause, TypeError | ValueError | AttributeError)
