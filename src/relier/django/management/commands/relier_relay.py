"""`python manage.py relier_relay`: committed rows of the outbox become tasks, until SIGTERM or SIGINT."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from django.db.utils import DEFAULT_DB_ALIAS

from relier.django.checks import tables_of
from relier.django.database import DjangoDatabase
from relier.errors import RelierError
from relier.outbox.metrics import serve_metrics
from relier.outbox.relay import Relay, RelayOptions, relay_to_ledger
from relier.outbox.target import Target
from relier.submit.client import default_client

HELP = {
    "batch_size": "Rows that are claimed at once.",
    "idle_time": "The longest pause between two looks at the table (s).",
    "publish_concurrency": "Threads that publish.",
    "send_timeout": "How long one publish may take (s).",
    "shutdown_timeout": "How long publishes under way may take after a signal to stop (s).",
    "broker_outage_cooldown": "How long nothing is tried once the target is away (s).",
    "max_retries": "A row that failed so often by its own fault is dead at the next failure.",
    "backoff_time": "The wait before a row's first retry (s); it doubles with each.",
    "max_backoff": "The longest wait of that kind (s).",
    "stale_timeout_seconds": "After so long (s) a row is taken from a relay that says nothing.",
    "liveness_file": "A file that is touched every pass; a probe checks its age.",
    "ordered": "Rows with the same order_key go out one after the other.",
}


class Command(BaseCommand):
    help = "Send the tasks that were committed to the outbox."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--database", default=DEFAULT_DB_ALIAS, metavar="ALIAS", help="The database whose outbox it is."
        )
        parser.add_argument(
            "--celery-app", metavar="APP", help="Also send rows that hold Celery messages, by this app's broker."
        )
        parser.add_argument("--metrics-port", type=int, metavar="N", help="Serve Prometheus metrics there.")
        defaults = RelayOptions()
        for option in fields(RelayOptions):
            if option.name not in HELP:
                continue
            default, flag = getattr(defaults, option.name), f"--{option.name.replace('_', '-')}"
            told = HELP[option.name]
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
        try:
            options = RelayOptions(**{name: given[name] for name in HELP})
            database = DjangoDatabase(alias)
            self._look_at_tables(alias)
            others = broker_of(given["celery_app"], options) if given["celery_app"] else []
            relay = relay_to_ledger(database, default_client(), options, others)
            if given["metrics_port"]:
                serve_metrics(relay, given["metrics_port"])
        except RelierError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"The relay sends what is committed to {options.table} in {alias!r} ({database.dialect}).")
        with stopped_by_signals(relay):
            relay.run()
        counts = relay.counts
        self.stdout.write(
            f"The relay has stopped: {counts.published} sent, {counts.failed} failed, {counts.dead} dead."
        )

    def _look_at_tables(self, alias: str) -> None:
        try:
            wrong = tables_of(alias)
        except DatabaseError as error:  # it is away: a relay waits for it
            self.stderr.write(f"The database did not answer, and is asked again: {error}")
            return
        if wrong:
            raise CommandError("\n".join(f"{one.msg}. {one.hint}" for one in wrong))


def broker_of(app: str, options: RelayOptions) -> list[Target]:
    try:
        from relier.celery.outbox import broker_target
    except ImportError as error:
        raise CommandError(f"{error}; install Celery: pip install relier[celery]") from error
    return [broker_target(app, options.send_timeout)]


@contextmanager
def stopped_by_signals(relay: Relay) -> Iterator[None]:
    """SIGTERM and SIGINT let it drain. The handler only starts a thread: it may interrupt the relay while that holds
    the very lock that `stop` needs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        threading.Thread(target=relay.stop, name="relier-relay-stops").start()

    before = {one: signal.signal(one, stop) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
