"""The database of `rl outbox`: its options, how it is opened, and what is said where it says no."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from relier.cli.session import Exit, Failure
from relier.outbox.push import DEFAULT_TABLE
from relier.outbox.relay.database_health import TABLE, refusal_in
from relier.outbox.relay.options import RelayOptions
from relier.outbox.table.statements import Database, OutboxTable, said_by
from relier.settings import OUTBOX_DATABASE
from relier.store.connect.address import redact
from relier.version import how_to_install

DATABASE_HELP = "The database, as SQLAlchemy writes it: postgresql+psycopg://…"
START_IT = f"see that it runs, and that --database or {OUTBOX_DATABASE} leads to it"


def on_database(function: Callable[..., Any], *, required: bool = True) -> Callable[..., Any]:
    """The options that say where the table is."""
    function = click.option("--table", default=DEFAULT_TABLE, show_default=True, help="The outbox table.")(function)
    return click.option(
        "--database",
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
        raise Failure(f"{error}; to install it, {how_to_install('sqlalchemy', 'postgres')}", Exit.USAGE) from error
    try:
        return database_of(url)
    except Exception as error:  # SQLAlchemy's, of a URL that is none, or a driver's that is not installed
        raise Failure(f"--database cannot be used: {error}", Exit.USAGE) from error


def on_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the table, opened, as `database` and `rows`."""

    @on_database
    @functools.wraps(function)
    def command(*args: Any, database: str, table: str, **given: Any) -> Any:
        opened = open_database(database)
        rows = OutboxTable(opened.dialect, RelayOptions(table=table).table)
        try:
            return function(*args, database=opened, rows=rows, **given)
        except click.ClickException:
            raise
        except Exception as error:
            reached = _answers(opened)  # raises what the driver says of the URL
            if not _is_of_database(error):
                raise
            advice = (refusal_in(error) or (TABLE if reached else START_IT)).format(table=table)
            raise Failure(_no_of(database, error, advice), Exit.STORE) from error
        finally:
            opened.close()

    return command


def _is_of_database(error: Exception) -> bool:
    """asyncpg's errors of a connection that cannot be made are not SQLAlchemy's."""
    return type(error).__module__.partition(".")[0] in ("sqlalchemy", "asyncpg") or isinstance(error, OSError)


def _answers(database: Database) -> bool:
    try:
        with database.begin() as tx:
            tx.run("SELECT 1", {})
    except Exception as error:
        from relier.outbox.sqlalchemy.engines import is_refused_by_driver

        if is_refused_by_driver(error):
            raise Failure(
                f"--database cannot be used: {said_by(error)}; see the options in the URL", Exit.USAGE
            ) from error
        return False
    return True


def _no_of(url: str, error: Exception, advice: str) -> str:
    return f"the database {redact(url)} said no: {said_by(error)}; {advice}"
