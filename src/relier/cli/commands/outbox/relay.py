"""rl outbox relay: send committed rows, from any number of databases and tables."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from relier.cli.long_running import long_running_options, settings_for, start_logging_for
from relier.cli.outbox_database import DATABASE_HELP, open_database, read_database_urls
from relier.cli.session import CommandFailure, Exit
from relier.outbox.relay.fleet import Fleet, RelayTable, check_relay_tables, tables_in
from relier.outbox.relay.monitoring import watch_relays
from relier.outbox.relay.options import RelayOptions, relay_options
from relier.outbox.table.statements import Database, Transaction
from relier.outbox.wake.postgres_notify import NotifyListener
from relier.settings import OUTBOX_DATABASE
from relier.store.connect.address import redact
from relier.submit.client import Client
from relier.version import how_to_install

if TYPE_CHECKING:
    from relier.outbox.publish.target import PublishTarget

log = logging.getLogger("relier.outbox")


def with_relay_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(relay_options()):
        if option.kind is bool:
            made = click.option(option.flag, is_flag=True, help=option.help)
        else:
            made = click.option(
                option.flag,
                type=option.kind,
                default=option.default,
                show_default=option.default not in (None, ()),
                multiple=option.many,
                metavar=option.metavar,
                help=option.help,
            )
        function = made(function)
    return function


@click.command()
@click.option(
    "--database",
    callback=read_database_urls,
    metavar="URL",
    envvar=OUTBOX_DATABASE,
    show_envvar=True,
    required=True,
    multiple=True,
    help=f"{DATABASE_HELP} Repeat for several databases.",
)
@with_relay_options
@long_running_options
@click.pass_context
def relay(ctx: click.Context, /, database: tuple[str, ...], **given: Any) -> None:
    """Turn committed rows into tasks, until stopped by SIGTERM or SIGINT.

    With several databases, tables or schemas, the process runs one relay for each table in each schema of each
    database.
    """
    if given["no_ledger"] and not given["celery_app"]:
        raise click.UsageError("--no-ledger leaves no target; add --celery-app")
    tables = tables_in(given["table"], given["schema"])
    options = RelayOptions(**{one.name: given[one.name] for one in fields(RelayOptions) if one.name != "table"})
    for table in tables:
        RelayOptions(table=table)  # raises if it is not a table name
    targets = celery_targets(given["celery_app"], options)
    start_logging_for(ctx)  # after the import of the Celery app, which may configure logging
    if "opentelemetry.sdk.trace" in sys.modules:  # as in `opentelemetry-instrument rl outbox relay`
        from relier.otel import use_tracing

        use_tracing()
    client = None if given["no_ledger"] else Client(settings_for(ctx))
    with ExitStack() as stack:
        places = places_of(stack, database, tables, listen=given["listen"])
        fleet = Fleet(places, options, targets, client)
        fleet.check()
        settings = settings_for(ctx)
        stack.enter_context(closing(watch_relays(fleet, settings, given["metrics_port"], given["metrics_host"])))
        fleet.run()
    log.info("relay %s stopped: published=%d", fleet.relays[0].relay_id, fleet.published)


def places_of(stack: ExitStack, urls: Sequence[str], tables: Sequence[str], *, listen: bool) -> list[RelayTable]:
    """Open every table of every database. Relays of one database share its connections."""
    places = []
    names = names_of(urls)
    for url in urls:
        shared: Database | None = None
        for table in tables:
            opened = shared or open_database(url)
            if shared is None and is_shareable(opened):
                stack.callback(opened.close)
                opened = shared = LentDatabase(opened)
            places.append(RelayTable(names[url], opened, table, _notices(url, table) if listen else None))
    check_relay_tables(places)
    return places


def names_of(urls: Sequence[str]) -> dict[str, str]:
    """Return the name of each database in logs and metrics: its URL without secrets. URLs that differ only in what is
    hidden, such as the user or `?host=`, are numbered."""
    names: dict[str, str] = {}
    for url in dict.fromkeys(urls):
        name = redact(url)
        same = sum(redact(other) == name for other in names)
        names[url] = f"{name} ({same + 1})" if same else name
    return names


def is_shareable(database: Database) -> bool:
    """Return whether threads may share the database. An async driver is bound to the event loop of its relay."""
    from relier.outbox.sqlalchemy.engines import EngineDatabase

    return isinstance(database, EngineDatabase)


class LentDatabase:
    """A database shared by several relays, none of which closes it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.dialect = database.dialect

    def begin(self) -> AbstractContextManager[Transaction]:
        return self._database.begin()

    def leave_thread(self) -> None: ...

    def close(self) -> None: ...


def _notices(url: str, table: str) -> Any:
    from relier.outbox.sqlalchemy.engines import notice_connector

    return partial(NotifyListener, notice_connector(url), table)


def celery_targets(app: str | None, options: RelayOptions) -> list[PublishTarget]:
    if app is None:
        return []
    try:
        from relier.celery.outbox import broker_target
    except ImportError as error:
        raise CommandFailure(f"{error}; to install Celery, {how_to_install('celery')}", Exit.USAGE) from error
    return [broker_target(app, options.send_timeout)]
