"""`python manage.py relier_relay`: send committed rows of the outbox, until SIGTERM or SIGINT."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections
from django.db.utils import DEFAULT_DB_ALIAS

from relier.django.checks import tables_of
from relier.django.database import DjangoDatabase, notice_connector
from relier.django.models import OutboxRow
from relier.errors import RelierError
from relier.outbox.publish.target import PublishTarget
from relier.outbox.relay.database_health import ask_within
from relier.outbox.relay.fleet import Fleet, RelayTable, check_relay_tables, tables_in
from relier.outbox.relay.monitoring import watch_relays
from relier.outbox.relay.options import LEVELS, RelayOptions, relay_options
from relier.outbox.wake.postgres_notify import NotifyListener
from relier.settings import get_settings
from relier.submit.client import default_client
from relier.version import how_to_install


class Command(BaseCommand):
    help = "Send the tasks that were committed to the outbox. Each database and table has its own relay."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--database",
            action="append",
            metavar="ALIAS",
            help=f"Database of the outbox; repeat for several.  [default: {DEFAULT_DB_ALIAS}]",
        )
        parser.add_argument("--log-level", choices=LEVELS, help="Log to stderr, from this level.")
        for option in relay_options():
            more: dict[str, Any] = {"dest": option.name, "help": option.help}
            if option.kind is bool:
                more |= {"action": "store_true"}
            elif option.many:
                more |= {"action": "append", "metavar": option.metavar}
            else:
                more |= {"type": option.kind, "default": option.default, "metavar": option.metavar or "N"}
            if not option.many and option.default and option.kind is not bool:
                more["help"] += f"  [default: {option.default:g}]"
            parser.add_argument(option.flag, **more)

    def handle(self, **given: Any) -> None:
        if given["no_ledger"] and not given["celery_app"]:
            raise CommandError("--no-ledger leaves no target; add --celery-app", returncode=2)
        if given["log_level"]:
            start_logging(given["log_level"])
        try:
            fleet = self._fleet(given)
        except RelierError as error:
            raise CommandError(str(error), returncode=2) from error
        if "opentelemetry.sdk.trace" in sys.modules:
            from relier.otel import use_tracing

            use_tracing()
        fleet.run()
        counts = [relay.counts for relay in fleet.relays]
        totals = {name: sum(getattr(one, name) for one in counts) for name in ("published", "failed", "dead")}
        self.stdout.write(
            f"Relay stopped: {totals['published']} sent, {totals['failed']} failed, {totals['dead']} dead."
        )

    def _fleet(self, given: dict[str, Any]) -> Fleet:
        options = RelayOptions(**{one.name: given[one.name] for one in fields(RelayOptions) if one.name != "table"})
        tables = tables_in(several(given["table"]) or [options.table], several(given["schema"]))
        aliases = several(given["database"]) or [DEFAULT_DB_ALIAS]
        relay_tables = [relay_table_of(alias, table, listen=given["listen"]) for alias in aliases for table in tables]
        check_relay_tables(relay_tables)
        self._look_at_tables(aliases, tables)
        others = broker_of(given["celery_app"], options) if given["celery_app"] else []
        fleet = Fleet(relay_tables, options, others, None if given["no_ledger"] else default_client())
        fleet.check()
        watch_relays(fleet, get_settings(), given["metrics_port"], given["metrics_host"])
        for relay_table in relay_tables:
            self.stdout.write(
                f"Relay started: table {relay_table.table} in {relay_table.name} ({relay_table.database.dialect})."
            )
        for alias in aliases:
            close_idle(alias)  # relays run in threads with their own connections
        return fleet

    def _look_at_tables(self, aliases: Sequence[str], tables: Sequence[str]) -> None:
        """Check the app's own table, if a relay uses it. Raise only if the table matches in none of the databases."""
        if OutboxRow._meta.db_table not in tables:
            return
        wrong = {alias: found for alias in aliases if (found := wrong_with(alias))}
        if wrong and len(wrong) == len(aliases):
            raise CommandError("\n".join(line for found in wrong.values() for line in found), returncode=2)
        for found in wrong.values():
            self.stderr.write("\n".join(found))


def wrong_with(alias: str) -> list[str]:
    try:
        found = ask_within(DjangoDatabase(alias), lambda: tables_of(alias))
    except (DatabaseError, TimeoutError):  # unreachable or refusing: the relay finds out which
        return []
    return [f"{one.msg}. {one.hint}" for one in found]


def relay_table_of(alias: str, table: str, *, listen: bool) -> RelayTable:
    database = DjangoDatabase(alias)
    listener = partial(NotifyListener, notice_connector(alias), table) if listen else None
    return RelayTable(repr(alias), database, RelayOptions(table=table).table, listener)


def several(given: str | Sequence[str] | None) -> list[str]:
    """Return a list. `call_command` may pass a single value."""
    if given is None:
        return []
    return [given] if isinstance(given, str) else list(given)


def close_idle(alias: str) -> None:
    if not connections[alias].in_atomic_block:
        connections[alias].close()


def start_logging(level: str) -> None:
    """Log to stderr, unless the project's LOGGING has a handler."""
    logger = logging.getLogger("relier")
    logger.setLevel(level.upper())
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        logger.addHandler(handler)


def broker_of(app: str, options: RelayOptions) -> list[PublishTarget]:
    try:
        from relier.celery.outbox import broker_target
    except ImportError as error:
        raise CommandError(f"{error}; to install Celery, {how_to_install('celery')}") from error
    return [broker_target(app, options.send_timeout)]
