"""`python manage.py relier_outbox …`: inspect the outbox, and replay or purge dead rows. The same as `rl outbox`, over
Django's own connections."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from django.db.utils import DEFAULT_DB_ALIAS

from relier.django.database import DjangoDatabase
from relier.errors import RelierError, StoreUnavailableError
from relier.ledger.pages import read_stats
from relier.outbox.inbox.marks import DEFAULT_INBOX, Marks
from relier.outbox.push import DEFAULT_TABLE
from relier.outbox.relay.membership import LivingRelay, living_relays
from relier.outbox.relay.options import RelayOptions, age_of
from relier.outbox.relay.upkeep import TAKES, UNKNOWN, left_alone
from relier.outbox.table.refusals import TABLE, refusal_in
from relier.outbox.table.statements import DeadRowFilter, OutboxTable, Transaction, said_by
from relier.outbox.wake.doorbell import is_store_running
from relier.redact import shown
from relier.submit.client import default_client

COUNTED = 1_000_000  # rows that `stats` counts

MIGRATE = "run `manage.py migrate` for this database, or name another table with --table"


class Command(BaseCommand):
    help = "Inspect the outbox: waiting and dead rows. Replay or purge dead rows. Delete old marks of the inbox."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for name, about in (
            ("stats", "Count waiting and dead rows, show the age of the oldest, and list the live relays."),
            ("dead", "List rows that could not be sent, with their errors."),
            ("replay", "Send dead rows again, with all their retries."),
            ("purge", "Delete dead rows."),
            ("forget", "Delete marks of `ctx.exactly_once` that are older than any task that could run again."),
        ):
            one = actions.add_parser(name, help=about, description=about)
            one.add_argument("--database", default=DEFAULT_DB_ALIAS, metavar="ALIAS", help="The database.")
            one.add_argument("--table", default=DEFAULT_TABLE, metavar="NAME", help="The outbox table.")
            one.add_argument("--json", action="store_true", dest="as_json", help="Print one JSON document.")
            if name in ("dead", "replay", "purge"):
                add_choice(one)
            if name in ("replay", "purge"):
                one.add_argument("--all", action="store_true", help="Every dead row, without an ID or a filter.")
                one.add_argument("--dry-run", action="store_true", help="Count only.")
            if name in ("replay", "purge", "forget"):
                one.add_argument("--yes", "-y", action="store_true", help="Do not ask for confirmation.")
            if name == "dead":
                one.add_argument("--limit", type=int, default=50, metavar="N", help="Longest list.  [default: 50]")
            if name == "forget":
                one.add_argument("--older-than", required=True, metavar="AGE", help="Only marks older than this: 90d.")
                one.add_argument("--inbox", default=DEFAULT_INBOX, metavar="NAME", help="The inbox table.")

    def handle(self, **given: Any) -> None:
        try:
            self.database = DjangoDatabase(given["database"])
            self.rows = OutboxTable(self.database.dialect, RelayOptions(table=given["table"]).table)
            self.as_json = given["as_json"]
            getattr(self, f"_{given['action']}")(given)
        except RelierError as error:
            raise CommandError(str(error), returncode=2) from error
        except DatabaseError as error:
            known = refusal_in(error)
            advice = MIGRATE if known == TABLE else known or "check that the database can be reached, and try again"
            said = f"database {given['database']!r} returned an error: {said_by(error)}; {advice}"
            raise CommandError(said, returncode=3) from error

    # --- reading -----------------------------------------------------------------------------------------------------

    def _stats(self, _: dict[str, Any]) -> None:
        with self.database.begin() as tx:
            depth, kinds = self.rows.depth(tx, COUNTED), self.rows.kinds(tx, COUNTED)
        relays = relays_alive()
        taken = {kind for relay in relays or () for kind in relay.takes(self.rows.table)}
        left = [] if relays is None else left_alone(kinds, taken)
        ids = None if relays is None else [relay.relay_id for relay in relays]
        oldest = f", the oldest for {span(depth.oldest_age_ms)}" if depth.waiting else ""
        self._answer(
            asdict(depth)
            | {"relays": ids, "kinds": [asdict(one) for one in kinds], "not_taken": [asdict(one) for one in left]},
            f"Waiting: {depth.waiting:,}{'' if depth.exact else ' or more'}{oldest}.",
            f"Dead: {depth.dead:,}{' or more' if depth.dead >= COUNTED else ''}.",
            "Relays: unknown, because the store does not answer."
            if ids is None
            else f"Relays: {', '.join(ids) or 'none; start one with `python manage.py relier_relay`'}.",
            *(
                f"No relay for: {plural(one.rows, f'{one.kind} row')}, the oldest for {span(one.oldest_age_ms)}: "
                f"{TAKES.get(one.kind, UNKNOWN)}."
                for one in left
            ),
        )

    def _dead(self, given: dict[str, Any]) -> None:
        wanted = wanted_in(given)
        with self.database.begin() as tx:
            found = [seen for one in wanted for seen in self.rows.dead(tx, one, given["limit"])][: given["limit"]]
            total = sum(self.rows.count_dead(tx, one) for one in wanted)
        settings = default_client().settings
        seen = [asdict(one) | {"error": str(shown(settings, one.name, one.error))} for one in found]
        lines = [
            f"{one['task_id']}  {one['name']}  {one['queue']}  {span(one['age_ms'])}  {first_line(one['error'])}"
            for one in seen
        ]
        self._answer({"total": total, "rows": seen}, *lines, f"{len(found):,} of {plural(total, 'dead row')}.")

    # --- changing ----------------------------------------------------------------------------------------------------

    def _replay(self, given: dict[str, Any]) -> None:
        self._carry_out(given, self.rows.replay, "Replay", "replayed")

    def _purge(self, given: dict[str, Any]) -> None:
        self._carry_out(given, self.rows.purge, "Delete", "deleted")

    def _carry_out(
        self, given: dict[str, Any], act: Callable[[Transaction, DeadRowFilter], int], verb: str, done_word: str
    ) -> None:
        wanted = wanted_in(given)
        if wanted == [DeadRowFilter()] and not given["all"]:
            raise CommandError("no rows selected; give IDs, --name, --queue, --older-than or --all", returncode=2)
        with self.database.begin() as tx:
            matched = sum(self.rows.count_dead(tx, one) for one in wanted)
        if given["dry_run"]:
            self._answer({"matched": matched, "done": 0}, f"{plural(matched, 'dead row')} would be {done_word}.")
            return
        self._ask(given, matched, f"{verb} {plural(matched, 'dead row')}?")
        with self.database.begin() as tx:
            done = sum(act(tx, one) for one in wanted)
        self._answer({"matched": matched, "done": done}, f"{plural(done, 'dead row')} {done_word}.")

    def _forget(self, given: dict[str, Any]) -> None:
        marks = Marks(self.database.dialect, RelayOptions(table=given["inbox"]).table)
        age, kept_ms = age_of(given["older_than"]), round(1000 * default_client().settings.dead_ttl)
        if age < kept_ms:
            self.stderr.write(
                f"Dead letters are kept for {span(kept_ms)} (RELIER_DEAD_TTL): if one is replayed after its mark is "
                f"deleted, its effect happens twice."
            )
        with self.database.begin() as tx:
            count = marks.count(tx, age)
        self._ask(given, count, f"Delete {plural(count, 'mark')}?")
        with self.database.begin() as tx:
            done = marks.purge(tx, age)
        self._answer({"removed": done}, f"{plural(done, 'mark')} deleted.")

    def _ask(self, given: dict[str, Any], count: int, question: str) -> None:
        if count and not given["yes"] and not self.as_json and input(f"{question} [y/N] ").lower() not in ("y", "yes"):
            raise CommandError("nothing was changed")

    def _answer(self, document: dict[str, Any], *lines: str) -> None:
        self.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) if self.as_json else "\n".join(lines))


def add_choice(parser: Any) -> None:
    """Add the options that select dead rows: by id, task, queue or age."""
    parser.add_argument("task_ids", nargs="*", type=not_empty, metavar="ID")
    parser.add_argument("--name", type=not_empty, metavar="TASK", help="Only rows of this task.")
    parser.add_argument("--queue", type=not_empty, metavar="NAME", help="Only rows for this queue.")
    parser.add_argument(
        "--older-than", type=not_empty, metavar="AGE", help="Only rows older than this: 90s, 15m, 6h, 7d."
    )


def not_empty(given: str) -> str:
    """Refuse a value that is empty, like a shell variable that is not set: it would select everything."""
    if not given:
        raise argparse.ArgumentTypeError("it is empty; give a value, or leave it out")
    return given


def wanted_in(given: dict[str, Any]) -> list[DeadRowFilter]:
    age = age_of(given["older_than"]) if given["older_than"] else 0
    name, queue = given["name"] or "", given["queue"] or ""
    return [DeadRowFilter(one, name, queue, age) for one in given["task_ids"] or ("",)]


def relays_alive() -> list[LivingRelay] | None:
    """Return the live relays, or None if they are unknown.

    They are unknown if the store cannot be reached. An embedded store that is not running is not asked, because asking
    would start it.
    """
    client = default_client()
    if not is_store_running(client.settings):
        return None
    try:
        return living_relays(read_stats(client.sync_store.run, client.ledger).nodes)
    except StoreUnavailableError:
        return None


def plural(n: int, thing: str) -> str:
    """Return a count with its noun: "1 dead row", "2 dead rows"."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def span(ms: float) -> str:
    return str(timedelta(seconds=round(ms / 1000)))


def first_line(error: str) -> str:
    return (error.splitlines() or [""])[0]
