"""Open the database of an outbox, and report its errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import click

from relier.cli.session import CommandFailure, Exit
from relier.outbox.push import DEFAULT_TABLE
from relier.outbox.relay.options import RelayOptions
from relier.outbox.table.refusals import TABLE, refusal_in
from relier.outbox.table.statements import Database, OutboxTable, said_by
from relier.settings import OUTBOX_DATABASE
from relier.store.connect.address import redact
from relier.version import how_to_install

DATABASE_HELP = "Database, as an SQLAlchemy URL: postgresql+psycopg://…, or postgres://…"
DRIVERS = {  # scheme without a driver -> (SQLAlchemy's default driver, what to use where that is not installed)
    "postgresql": ("psycopg2", "psycopg"),
    "mysql": ("MySQLdb", "pymysql"),
    "mariadb": ("MySQLdb", "pymysql"),
}


def read_database_urls(_: click.Context, __: click.Parameter, given: Any) -> Any:
    """Normalize the values of --database: one, several or none."""
    if isinstance(given, tuple):
        return tuple(map(understood, given))
    return None if given is None else understood(given)


def understood(url: str) -> str:
    """Return a database URL as SQLAlchemy expects it.

    Hosting providers write `postgres://`, which SQLAlchemy does not know. Without a driver in the URL it expects one
    that our extras do not install.
    """
    scheme, mark, rest = url.partition("://")
    scheme = scheme.lower()
    dialect, plus, driver = scheme.partition("+")
    dialect = "postgresql" if dialect == "postgres" else dialect
    usual, ours = DRIVERS.get(dialect, ("", ""))
    if not plus and ours and find_spec(usual) is None and find_spec(ours) is not None:
        plus, driver = "+", ours
    return f"{dialect}{plus}{driver}{mark}{rest}" if mark else url


START_IT = f"check that it runs and that --database or {OUTBOX_DATABASE} is correct"


def database_options(function: Callable[..., Any], *, required: bool = True) -> Callable[..., Any]:
    """Add --database and --table."""
    function = click.option("--table", default=DEFAULT_TABLE, show_default=True, help="Outbox table.")(function)
    return click.option(
        "--database",
        callback=read_database_urls,
        metavar="URL",
        envvar=OUTBOX_DATABASE,
        show_envvar=True,
        required=required,
        help=DATABASE_HELP,
    )(function)


def open_database(url: str) -> Database:
    try:
        from relier.outbox.sqlalchemy.engines import database_of
    except ImportError as error:
        raise CommandFailure(
            f"{error}; to install it, {how_to_install('sqlalchemy', 'postgres')}", Exit.USAGE
        ) from error
    try:
        return database_of(url)
    except Exception as error:  # SQLAlchemy refuses the URL, or the driver is not installed
        raise CommandFailure(f"--database cannot be used: {error}", Exit.USAGE) from error


def with_outbox_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """Open the outbox table and pass it to a command as `database` and `rows`."""

    @database_options
    @functools.wraps(function)
    def command(*args: Any, database: str, table: str, **given: Any) -> Any:
        opened = open_database(database)
        rows = OutboxTable(opened.dialect, RelayOptions(table=table).table)
        try:
            return function(*args, database=opened, rows=rows, **given)
        except click.ClickException:
            raise
        except Exception as error:
            reached = _answers(opened)  # raises if the driver refuses the URL
            if not _is_of_database(error):
                raise
            advice = (refusal_in(error) or (TABLE if reached else START_IT)).format(table=table)
            raise CommandFailure(_no_of(database, error, advice), Exit.STORE) from error
        finally:
            opened.close()

    return command


def _is_of_database(error: Exception) -> bool:
    """Return whether an error comes from the database. SQLAlchemy does not wrap asyncpg's connection errors."""
    return type(error).__module__.partition(".")[0] in ("sqlalchemy", "asyncpg") or isinstance(error, OSError)


def _answers(database: Database) -> bool:
    try:
        with database.begin() as tx:
            tx.run("SELECT 1", {})
    except Exception as error:
        from relier.outbox.sqlalchemy.engines import is_refused_by_driver

        if is_refused_by_driver(error):
            raise CommandFailure(
                f"--database cannot be used: {said_by(error)}; check the options in the URL", Exit.USAGE
            ) from error
        return False
    return True


def _no_of(url: str, error: Exception, advice: str) -> str:
    return f"the database {redact(url)} refused: {said_by(error)}; {advice}"
