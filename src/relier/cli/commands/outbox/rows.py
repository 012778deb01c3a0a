"""rl outbox: run a relay, count waiting rows, and handle dead rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import click

from relier.cli.command_groups import store_options
from relier.cli.commands.outbox.relay import relay
from relier.cli.outbox_database import with_outbox_rows
from relier.cli.output import one_line, plural, print_json, span
from relier.cli.session import CommandFailure, Exit, Session, not_empty, with_session
from relier.cli.shards.routes import first_shard, routed
from relier.cli.table import MADE, print_table
from relier.errors import StoreUnavailableError
from relier.ledger.pages import read_stats
from relier.outbox.inbox.marks import DEFAULT_INBOX, Marks
from relier.outbox.relay.membership import LivingRelay, living_relays
from relier.outbox.relay.options import RelayOptions, age_of
from relier.outbox.relay.upkeep import TAKES, UNKNOWN, left_alone
from relier.outbox.table.statements import Database, DeadRow, DeadRowFilter, OutboxTable, Transaction
from relier.redact import shown
from relier.settings import Settings

SEARCHED = 10_000  # dead rows that are searched for the beginning of an id
MOST_SHOWN = 10
COUNTED = 1_000_000  # `stats` counts up to this many rows, then prints "or more"


@click.group()
@store_options
def outbox(**_: Any) -> None:
    """Manage tasks that were pushed inside database transactions.

    Their rows wait in an outbox table until a relay turns them into tasks. Give the database as an SQLAlchemy URL, with
    --database or RELIER_OUTBOX_DATABASE_URL.
    """


outbox.add_command(relay)


# --- commands ----------------------------------------------------------------------------------------------------


def row_filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ID…, --name, --queue and --older-than, passed on as filters."""

    @click.argument("task_ids", nargs=-1, metavar="[ID]…", callback=not_empty)
    @click.option("--name", default="", metavar="TASK", callback=not_empty, help="Only rows for this task.")
    @click.option("--queue", default="", metavar="NAME", callback=not_empty, help="Only rows for this queue.")
    @click.option(
        "--older-than",
        default="",
        metavar="AGE",
        callback=not_empty,
        help="Only rows older than this: 90s, 15m, 6h, 7d.",
    )
    @functools.wraps(function)
    def command(*args: Any, task_ids: tuple[str, ...], name: str, queue: str, older_than: str, **given: Any) -> Any:
        age = age_of(older_than) if older_than else 0
        wanted = [DeadRowFilter(one, name, queue, age) for one in task_ids or ("",)]
        return function(*args, wanted=wanted, **given)

    return command


@outbox.command()
@with_outbox_rows
@with_session
@routed(first_shard)
def stats(session: Session, database: Database, rows: OutboxTable) -> None:
    """Show how many rows wait, the age of the oldest, dead rows, and live relays."""
    with database.begin() as tx:
        depth, kinds = rows.depth(tx, COUNTED), rows.kinds(tx, COUNTED)
    relays = relays_of(session)
    taken = {kind for relay in relays or () for kind in relay.takes(rows.table)}
    left = [] if relays is None else left_alone(kinds, taken)
    if session.as_json:
        known = None if relays is None else [relay.relay_id for relay in relays]
        found = {"kinds": [asdict(one) for one in kinds], "not_taken": [asdict(one) for one in left]}
        print_json(asdict(depth) | {"relays": known} | found)
        return
    more = "" if depth.exact else " or more"
    oldest = f", the oldest for {span(depth.oldest_age_ms)}" if depth.waiting else ""
    click.echo(f"Waiting: {depth.waiting:,}{more}{oldest}.")
    click.echo(f"Dead: {depth.dead:,}{' or more' if depth.dead >= COUNTED else ''}.")
    if relays is None:
        click.echo("Relays: unknown, because the store does not answer.")
    else:
        names = ", ".join(relay.relay_id for relay in relays)
        click.echo(f"Relays: {names or 'none; start one with `rl outbox relay`'}.")
    for one in left:
        rows_of, advice = plural(one.rows, f"{one.kind} row"), TAKES.get(one.kind, UNKNOWN)
        click.echo(f"No relay for: {rows_of}, the oldest for {span(one.oldest_age_ms)}: {advice}.")


def relays_of(session: Session) -> list[LivingRelay] | None:
    """Return the live relays, or None if the store does not answer: the number of rows is still useful then."""
    try:
        return living_relays(read_stats(session.run, session.ledger).nodes)
    except StoreUnavailableError:
        return None


@outbox.command()
@row_filter_options
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Maximum number to list.")
@with_outbox_rows
@with_session
@routed(first_shard)
def dead(session: Session, database: Database, rows: OutboxTable, wanted: list[DeadRowFilter], limit: int) -> Exit:
    """List rows that could not be sent, with their errors."""
    wanted = with_full_ids(database, rows, wanted)
    with database.begin() as tx:
        found = [seen for one in wanted for seen in rows.dead(tx, one, limit)][:limit]
        counts = [rows.count_dead(tx, one) for one in wanted]
    code = _missing(wanted, counts)
    if session.as_json:
        print_json({"total": sum(counts), "rows": [_dead_dict(session.settings, seen) for seen in found]})
    elif found:
        _print_dead(session.settings, found, sum(counts))
    elif code is Exit.OK:
        click.echo("No dead rows.")
    return code


def with_full_ids(database: Database, rows: OutboxTable, wanted: list[DeadRowFilter]) -> list[DeadRowFilter]:
    """Return the filters with complete ids. An id that is the beginning of no dead row's id is returned unchanged."""
    if all(MADE.fullmatch(one.task_id) or not one.task_id for one in wanted):
        return wanted
    with database.begin() as tx:
        known = [seen.task_id for seen in rows.dead(tx, DeadRowFilter(), SEARCHED)]
        whole = {one.task_id for one in wanted if rows.count_dead(tx, DeadRowFilter(one.task_id))}
    return [one if one.task_id in whole else replace(one, task_id=_full_id(one.task_id, known)) for one in wanted]


def _full_id(given: str, known: list[str]) -> str:
    found = [task_id for task_id in known if task_id.startswith(given)]
    if len(found) > 1:
        more = ["…"] if len(found) > MOST_SHOWN else []
        message = f"{plural(len(found), 'dead row')} begin with {given!r}; give more characters of the id:"
        raise CommandFailure(message, Exit.PROBLEM, [*found[:MOST_SHOWN], *more])
    return found[0] if found else given


def _print_dead(settings: Settings, found: list[DeadRow], total: int) -> None:
    headers = ("ID", "TASK", "QUEUE", "AGE", "TRIES", "ERROR")
    table = [
        (seen.task_id, seen.name, seen.queue, span(seen.age_ms), str(seen.claims), _reason(settings, seen))
        for seen in found
    ]
    print_table(headers, table, optional=("TRIES", "QUEUE"))
    click.echo(f"{len(found):,} of {plural(total, 'dead row')}.")


def _missing(wanted: list[DeadRowFilter], counts: list[int]) -> Exit:
    """Report the given ids that are not dead rows. Return Exit.PROBLEM if there are any."""
    missing = [one for one, count in zip(wanted, counts, strict=True) if one.task_id and not count]
    for one in missing:
        filtered = " that matches the filters" if one != DeadRowFilter(one.task_id) else ""
        click.echo(f"rl: no dead row {one_line(one.task_id)}{filtered}", err=True)
    return Exit.PROBLEM if missing else Exit.OK


def _dead_dict(settings: Settings, seen: DeadRow) -> dict[str, Any]:
    return asdict(seen) | {"error": _error(settings, seen)}


def _error(settings: Settings, seen: DeadRow) -> str:
    """Return the redacted error."""
    return str(shown(settings, seen.name, seen.error))


def _reason(settings: Settings, seen: DeadRow) -> str:
    return one_line((_error(settings, seen).splitlines() or [""])[0])


def confirmation_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --all, --dry-run and --yes."""

    @click.option("--all", "everything", is_flag=True, help="Select all dead rows.")
    @click.option("--dry-run", is_flag=True, help="Count the rows; change nothing.")
    @click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
    @functools.wraps(function)
    def command(*args: Any, wanted: list[DeadRowFilter], everything: bool, **given: Any) -> Any:
        if wanted == [DeadRowFilter()] and not everything:
            raise click.UsageError("no rows selected; give IDs, --name, --queue, --older-than or --all")
        return function(*args, wanted=wanted, **given)

    return command


@outbox.command()
@row_filter_options
@confirmation_options
@with_outbox_rows
@with_session
@routed(first_shard)
def replay(
    session: Session, database: Database, rows: OutboxTable, wanted: list[DeadRowFilter], dry_run: bool, yes: bool
) -> Exit:
    """Send dead rows again, with a full set of retries."""
    wanted = with_full_ids(database, rows, wanted)
    counts = _confirm(session, database, rows, wanted, "Replay", sure=yes or dry_run)
    return _carry_out(session, database, wanted, rows.replay, "replayed", counts, dry_run=dry_run)


@outbox.command()
@row_filter_options
@confirmation_options
@with_outbox_rows
@with_session
@routed(first_shard)
def purge(
    session: Session, database: Database, rows: OutboxTable, wanted: list[DeadRowFilter], dry_run: bool, yes: bool
) -> Exit:
    """Delete dead rows permanently."""
    wanted = with_full_ids(database, rows, wanted)
    counts = _confirm(session, database, rows, wanted, "Permanently delete", sure=yes or dry_run)
    return _carry_out(session, database, wanted, rows.purge, "deleted", counts, dry_run=dry_run)


@outbox.command()
@click.option(
    "--older-than",
    required=True,
    metavar="AGE",
    help="Only marks older than this: 90d.",
)
@click.option("--inbox", default=DEFAULT_INBOX, show_default=True, help="Table that holds the marks.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@with_outbox_rows
@with_session
@routed(first_shard)
def forget(session: Session, database: Database, rows: OutboxTable, older_than: str, inbox: str, yes: bool) -> None:  # noqa: ARG001
    """Delete old marks of `ctx.exactly_once`.

    Keep a mark as long as its task may run again: without its mark, the task would take effect a second time.
    """
    marks, age = Marks(database.dialect, RelayOptions(table=inbox).table), age_of(older_than)
    kept_ms = round(1000 * session.settings.dead_ttl)
    if age < kept_ms:
        click.echo(
            f"rl: warning: dead letters are kept for {span(kept_ms)} (RELIER_DEAD_TTL); one that is replayed after its "
            f"mark was deleted takes effect twice",
            err=True,
        )
    with database.begin() as tx:
        count = marks.count(tx, age)
    if count and not yes and not session.as_json:
        click.confirm(f"Permanently delete {plural(count, 'mark')}?", abort=True)
    with database.begin() as tx:
        done = marks.purge(tx, age)
    if session.as_json:
        print_json({"removed": done})
    else:
        click.echo(f"{plural(done, 'mark')} deleted.")


def _confirm(
    session: Session, database: Database, rows: OutboxTable, wanted: list[DeadRowFilter], verb: str, *, sure: bool
) -> list[int]:
    """Ask for confirmation. Return how many rows each filter selects."""
    with database.begin() as tx:
        counts = [rows.count_dead(tx, one) for one in wanted]
    if sum(counts) and not sure and not session.as_json:
        click.confirm(f"{verb} {plural(sum(counts), 'dead row')}?", abort=True)
    return counts


def _carry_out(
    session: Session,
    database: Database,
    wanted: list[DeadRowFilter],
    act: Callable[[Transaction, DeadRowFilter], int],
    done_word: str,
    counts: list[int],
    *,
    dry_run: bool,
) -> Exit:
    done, code = 0, _missing(wanted, counts)
    if not dry_run:
        with database.begin() as tx:
            done = sum(act(tx, one) for one in wanted)
    if session.as_json:
        print_json({"matched": sum(counts), "done": done, "dry_run": dry_run})
    elif dry_run:
        click.echo(f"{plural(sum(counts), 'dead row')} would be {done_word}.")
    else:
        click.echo(f"{plural(done, 'dead row')} {done_word}.")
    return code
