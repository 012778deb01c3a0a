"""rl outbox: rows that wait in a database to become tasks. The relay that sends them; what is done with the dead."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from relier.cli.database import on_database, on_rows, open_database
from relier.cli.session import Exit, Failure, Session, with_session
from relier.cli.show import many, one_line, print_json, print_table, span
from relier.cli.worker import settings_for, start_logging, stays
from relier.errors import StoreUnavailableError
from relier.ledger.pages import read_stats
from relier.outbox.bell import Ear
from relier.outbox.inbox import DEFAULT_INBOX, Marks
from relier.outbox.members import is_relay
from relier.outbox.options import OPTION_HELP, RelayOptions
from relier.outbox.postgres import NoticeListener
from relier.outbox.process import run_relays
from relier.outbox.relay import Relay, relay_to_ledger
from relier.outbox.rows import Database, Rows, Seen, Transaction, Wanted
from relier.redact import shown
from relier.settings import Settings
from relier.store.address import redact
from relier.submit.client import Client

if TYPE_CHECKING:
    from relier.outbox.target import Target

log = logging.getLogger("relier.outbox")

COUNTED = 1_000_000  # rows that `stats` counts; beyond that it says "or more"
LONGEST_AGE = 9  # digits: older than anything is, and still no more than a database counts
UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@click.group()
def outbox() -> None:
    """Tasks that were pushed inside database transactions, and wait for a relay.

    The database is given by --database or RELIER_OUTBOX_DATABASE_URL, as an SQLAlchemy URL.
    """


# --- the relay -------------------------------------------------------------------------------------------------------


def relay_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Those of RelayOptions, by their names."""
    for field in reversed(fields(RelayOptions)):
        name = f"--{field.name.replace('_', '-')}"
        if field.name == "table":
            continue
        if field.default is False:
            function = click.option(name, is_flag=True, help=OPTION_HELP[field.name])(function)
        else:
            kind = {"int": int, "float": float}.get(str(field.type), str)
            function = click.option(
                name, type=kind, default=field.default, show_default=True, help=OPTION_HELP[field.name]
            )(function)
    return function


@outbox.command()
@on_database
@relay_options
@click.option("--celery-app", metavar="APP", help="Also send rows that hold Celery messages, by this app's broker.")
@click.option("--no-ledger", is_flag=True, help="With --celery-app: only its broker. Rows for the ledger stay.")
@click.option("--listen", is_flag=True, help="Be woken by PostgreSQL's NOTIFY, of outboxes with notify=True.")
@click.option("--metrics-port", type=click.IntRange(1, 65_535), help="Serve Prometheus metrics there.")
@stays
@click.pass_context
def relay(ctx: click.Context, /, database: str, **given: Any) -> None:
    """Turn committed rows into tasks, until told to stop (SIGTERM, SIGINT)."""
    start_logging(given.pop("log_level"))
    app, port, listen, alone = (given.pop(name) for name in ("celery_app", "metrics_port", "listen", "no_ledger"))
    for name in ("url", "namespace"):
        del given[name]  # settings_for reads them, here and before the command
    if alone and not app:
        raise click.UsageError("--no-ledger leaves nowhere to send to: give --celery-app, too")
    options = RelayOptions(**given)
    targets = _celery_targets(app, options)
    client = None if alone else Client(settings_for(ctx))
    opened = open_database(database)
    try:
        ear = _notices(database, options) if listen else None
        if client is None:
            made = Relay(opened, targets, options, listener=ear)
        else:
            made = relay_to_ledger(opened, client, options, targets, ear)
        made.health.check(redact(database))
        if port:
            from relier.outbox.metrics import serve_metrics

            serve_metrics(made, port)
    except BaseException:
        opened.close()
        raise
    log.info("relay %s sends what is committed to table %s", made.boot, options.table)
    run_relays([made])
    log.info("relay %s leaves; it sent %s", made.boot, many(made.counts.published, "row"))


def _notices(database: str, options: RelayOptions) -> Callable[[Callable[[], None]], Ear]:
    from relier.outbox.engines import notice_connector

    return partial(NoticeListener, notice_connector(database), options.table)


def _celery_targets(app: str | None, options: RelayOptions) -> list[Target]:
    if app is None:
        return []
    try:
        from relier.celery.outbox import broker_target
    except ImportError as error:
        raise Failure(f"{error}; install Celery: pip install relier[celery]", Exit.USAGE) from error
    return [broker_target(app, options.send_timeout)]


# --- people ----------------------------------------------------------------------------------------------------------


def choosing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Which of the dead: by id, task, queue or age."""

    @click.argument("task_ids", nargs=-1, metavar="[ID]…")
    @click.option("--name", default="", metavar="TASK", help="Only rows of this task.")
    @click.option("--queue", default="", metavar="NAME", help="Only rows for this queue.")
    @click.option("--older-than", default="", metavar="AGE", help="Only rows so old: 90s, 15m, 6h, 7d.")
    @functools.wraps(function)
    def command(*args: Any, task_ids: tuple[str, ...], name: str, queue: str, older_than: str, **given: Any) -> Any:
        age = age_of(older_than) if older_than else 0
        wanted = [Wanted(one, name, queue, age) for one in task_ids or ("",)]
        return function(*args, wanted=wanted, **given)

    return command


def age_of(text: str) -> int:
    """In ms."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not number.isdecimal() or len(number) > LONGEST_AGE:
        raise click.UsageError(f"an age is a number and a unit, 90s, 15m, 6h or 7d, not {text[:60]!r}")
    return int(number) * UNITS[unit]


@outbox.command()
@on_rows
@with_session
def stats(session: Session, database: Database, rows: Rows) -> None:
    """How many rows wait, how old the oldest is, how many are dead, and which relays live."""
    with database.begin() as tx:
        depth = rows.depth(tx, COUNTED)
    relays = _relays(session)
    if session.as_json:
        print_json(asdict(depth) | {"relays": relays})
        return
    more = "" if depth.exact else " or more"
    oldest = f", the oldest for {span(depth.oldest_age_ms)}" if depth.waiting else ""
    click.echo(f"Waiting: {depth.waiting:,}{more}{oldest}.")
    click.echo(f"Dead: {depth.dead:,}{' or more' if depth.dead >= COUNTED else ''}.")
    if relays is None:
        click.echo("Relays: not known, for the store does not answer.")
    else:
        click.echo(f"Relays: {', '.join(relays) or 'none; start one with `rl outbox relay`'}.")


def _relays(session: Session) -> list[str] | None:
    """Those that live; None where the store is away, which is just when people want to know how many rows wait."""
    try:
        boots = read_stats(session.run, session.ledger).boots
    except StoreUnavailableError:
        return None
    return [boot.boot for boot in boots if is_relay(boot.boot) and boot.lease_left_ms > 0]


@outbox.command()
@choosing
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@on_rows
@with_session
def dead(session: Session, database: Database, rows: Rows, wanted: list[Wanted], limit: int) -> Exit:
    """Rows that could not be sent, with their exceptions."""
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


def _print_dead(settings: Settings, found: list[Seen], total: int) -> None:
    headers = ("ID", "TASK", "QUEUE", "AGE", "TRIES", "DIED OF")
    table = [
        (seen.task_id, seen.name, seen.queue, span(seen.age_ms), str(seen.claims), _reason(settings, seen))
        for seen in found
    ]
    print_table(headers, table)
    click.echo(f"{len(found):,} of {many(total, 'dead row')}.")


def _missing(wanted: list[Wanted], counts: list[int]) -> Exit:
    """Says which ids that somebody typed are no dead rows; a problem, if there is one."""
    missing = [one for one, count in zip(wanted, counts, strict=True) if one.task_id and not count]
    for one in missing:
        filtered = " that fits" if one != Wanted(one.task_id) else ""
        click.echo(f"rl: there is no dead row {one_line(one.task_id)}{filtered}", err=True)
    return Exit.PROBLEM if missing else Exit.OK


def _dead_dict(settings: Settings, seen: Seen) -> dict[str, Any]:
    return asdict(seen) | {"error": _error(settings, seen)}


def _error(settings: Settings, seen: Seen) -> str:
    """As far as people may see it."""
    return str(shown(settings, seen.name, seen.error))


def _reason(settings: Settings, seen: Seen) -> str:
    return one_line((_error(settings, seen).splitlines() or [""])[0])


def deciding(function: Callable[..., Any]) -> Callable[..., Any]:
    """How sure a person is."""

    @click.option("--all", "everything", is_flag=True, help="All of them, without an ID or a filter.")
    @click.option("--dry-run", is_flag=True, help="Only count.")
    @click.option("--yes", "-y", is_flag=True, help="Do not ask.")
    @functools.wraps(function)
    def command(*args: Any, wanted: list[Wanted], everything: bool, **given: Any) -> Any:
        if wanted == [Wanted()] and not everything:
            raise click.UsageError("say which: IDs, --name, --queue, --older-than, or --all")
        return function(*args, wanted=wanted, **given)

    return command


@outbox.command()
@choosing
@deciding
@on_rows
@with_session
def replay(session: Session, database: Database, rows: Rows, wanted: list[Wanted], dry_run: bool, yes: bool) -> Exit:
    """Send dead rows once more, with all their retries."""
    counts = _asked(session, database, rows, wanted, "Replay", sure=yes or dry_run)
    return _carry_out(session, database, wanted, rows.replay, "replayed", counts, dry_run=dry_run)


@outbox.command()
@choosing
@deciding
@on_rows
@with_session
def purge(session: Session, database: Database, rows: Rows, wanted: list[Wanted], dry_run: bool, yes: bool) -> Exit:
    """Remove dead rows for good."""
    counts = _asked(session, database, rows, wanted, "Remove for good", sure=yes or dry_run)
    return _carry_out(session, database, wanted, rows.purge, "removed", counts, dry_run=dry_run)


@outbox.command()
@click.option(
    "--older-than",
    required=True,
    metavar="AGE",
    help="Only marks so old: 90d.",
)
@click.option("--inbox", default=DEFAULT_INBOX, show_default=True, help="The table of the marks.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@on_rows
@with_session
def forget(session: Session, database: Database, rows: Rows, older_than: str, inbox: str, yes: bool) -> None:  # noqa: ARG001
    """Remove the marks of `ctx.exactly_once` that are older than any task that could come back."""
    marks, age = Marks(database.dialect, RelayOptions(table=inbox).table), age_of(older_than)
    kept_ms = round(1000 * session.settings.dead_ttl)
    if age < kept_ms:
        click.echo(
            f"rl: dead letters are kept for {span(kept_ms)} (RELIER_DEAD_TTL): one that is replayed after its mark is "
            f"gone has its effect twice",
            err=True,
        )
    with database.begin() as tx:
        count = marks.count(tx, age)
    if count and not yes and not session.as_json:
        click.confirm(f"Remove for good {many(count, 'mark')}?", abort=True)
    with database.begin() as tx:
        done = marks.purge(tx, age)
    if session.as_json:
        print_json({"removed": done})
    else:
        click.echo(f"{many(done, 'mark')} removed.")


def _asked(
    session: Session, database: Database, rows: Rows, wanted: list[Wanted], verb: str, *, sure: bool
) -> list[int]:
    """How many rows each of them means, being sure that they are meant."""
    with database.begin() as tx:
        counts = [rows.count_dead(tx, one) for one in wanted]
    if sum(counts) and not sure and not session.as_json:
        click.confirm(f"{verb} {many(sum(counts), 'dead row')}?", abort=True)
    return counts


def _carry_out(
    session: Session,
    database: Database,
    wanted: list[Wanted],
    act: Callable[[Transaction, Wanted], int],
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
        click.echo(f"{many(sum(counts), 'dead row')} would be {done_word}.")
    else:
        click.echo(f"{many(done, 'dead row')} {done_word}.")
    return code
