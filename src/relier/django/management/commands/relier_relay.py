"""`python manage.py relier_relay`: committed rows of the outbox become tasks, until SIGTERM or SIGINT."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from django.db.utils import DEFAULT_DB_ALIAS

from relier.django.checks import tables_of
from relier.django.database import DjangoDatabase
from relier.errors import RelierError
from relier.outbox.metrics import serve_metrics
from relier.outbox.options import OPTION_HELP, RelayOptions
from relier.outbox.process import run_relays
from relier.outbox.relay import Relay, relay_to_ledger
from relier.outbox.target import Target
from relier.submit.client import default_client


class Command(BaseCommand):
    help = "Send the tasks that were committed to the outbox."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--database", default=DEFAULT_DB_ALIAS, metavar="ALIAS", help="The database whose outbox it is."
        )
        parser.add_argument(
            "--celery-app", metavar="APP", help="Also send rows that hold Celery messages, by this app's broker."
        )
        parser.add_argument(
            "--no-ledger", action="store_true", help="With --celery-app: only its broker. Rows for the ledger stay."
        )
        parser.add_argument("--metrics-port", type=int, metavar="N", help="Serve Prometheus metrics there.")
        defaults = RelayOptions()
        for option in fields(RelayOptions):
            if option.name not in OPTION_HELP:
                continue
            default, flag = getattr(defaults, option.name), f"--{option.name.replace('_', '-')}"
            told = OPTION_HELP[option.name]
            if isinstance(default, bool):
                parser.add_argument(flag, action="store_true", default=default, help=told)
            elif default is None:
                parser.add_argument(flag, metavar="PATH", help=told)
            else:
                parser.add_argument(
                    flag, type=type(default), default=default, metavar="N", help=f"{told}  [default: {default:g}]"
                )

    def handle(self, **given: Any) -> None:
        alias = given["database"]
        if given["no_ledger"] and not given["celery_app"]:
            raise CommandError("--no-ledger leaves nowhere to send to: give --celery-app, too")
        try:
            options = RelayOptions(**{name: given[name] for name in OPTION_HELP})
            database = DjangoDatabase(alias)
            self._look_at_tables(alias)
            others = broker_of(given["celery_app"], options) if given["celery_app"] else []
            if given["no_ledger"]:
                relay = Relay(database, others, options)
            else:
                relay = relay_to_ledger(database, default_client(), options, others)
            relay.health.check(repr(alias))
            if given["metrics_port"]:
                serve_metrics(relay, given["metrics_port"])
        except RelierError as error:
            raise CommandError(str(error), returncode=2) from error
        self.stdout.write(f"The relay sends what is committed to {options.table} in {alias!r} ({database.dialect}).")
        run_relays([relay])
        counts = relay.counts
        self.stdout.write(
            f"The relay has stopped: {counts.published} sent, {counts.failed} failed, {counts.dead} dead."
        )

    def _look_at_tables(self, alias: str) -> None:
        try:
            wrong = tables_of(alias)
        except DatabaseError:  # it is away, or refuses: the relay finds out which
            return
        if wrong:
            raise CommandError("\n".join(f"{one.msg}. {one.hint}" for one in wrong), returncode=2)


def broker_of(app: str, options: RelayOptions) -> list[Target]:
    try:
        from relier.celery.outbox import broker_target
    except ImportError as error:
        raise CommandError(f"{error}; install Celery: pip install relier[celery]") from error
    return [broker_target(app, options.send_timeout)]
