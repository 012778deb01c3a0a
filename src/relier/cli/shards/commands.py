"""rl shards: show the shards, check that every task is in its own, change their number."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import click

from relier.cli.command_groups import DefaultGroup, store_options
from relier.cli.output import plural, print_json
from relier.cli.session import DRY_RUN, CommandFailure, Exit, Session, with_session
from relier.cli.shards.change import ended_in, left_in, settings_after, write_marks
from relier.cli.shards.check import Misplaced, leftovers, misplaced
from relier.cli.shards.routes import once, routed
from relier.cli.table import print_table
from relier.errors import RelierError, StoreError
from relier.ledger.pages import read_stats
from relier.settings import Settings
from relier.settings.shards import MOST_SHARDS
from relier.states import State
from relier.store.connect.address import target_of
from relier.store.connect.one_server import OneServer
from relier.submit.client import place_of

SHOWN = 10
HEADERS = ("SHARD", "ANSWERS", "WORKERS", "QUEUED", "RUNNING", "SCHEDULED", "DEAD", "WHERE")


@click.group(cls=DefaultGroup, default="list", aliases={"ls": "list", "status": "list"})
@store_options
def shards(**_: Any) -> None:
    """Show the shards of the namespace, check that every task is in its own, and change their number.

    Without a command, lists the shards.
    """


@dataclass(frozen=True, slots=True)
class ShardState:
    """What `rl shards` shows of one shard. `error`: why it could not be read."""

    shard: int
    place: str
    answers: bool
    workers: int = 0
    queued: int = 0
    running: int = 0
    scheduled: int = 0
    dead: int = 0
    error: str = ""


def _where(settings: Settings) -> str:
    """Return the store of a shard: its URL or, behind Sentinel and in a cluster, the server that is its master now."""
    if target_of(settings).kind in {"sentinel", "cluster"}:
        with suppress(RelierError), OneServer.master_of(settings) as master:
            return str(master.address)
    return place_of(settings).partition(" at ")[2]


def sessions_of(session: Session) -> list[Session]:
    """Return the sessions of all shards, or this one if the namespace has no others."""
    return session.shards if session.is_sharded else [session]


def look(session: Session) -> ShardState:
    number, place = session.settings.shard or 0, _where(session.settings)
    try:
        stats = read_stats(session.run, session.ledger)
    except StoreError as error:
        return ShardState(number, place, answers=False, error=str(error))
    tasks = stats.by_state()
    return ShardState(
        number,
        place,
        answers=True,
        workers=len(stats.alive(session.settings.heartbeat_ttl)),
        queued=tasks.get(State.QUEUED, 0),
        running=tasks.get(State.RUNNING, 0),
        scheduled=tasks.get(State.SCHEDULED, 0),
        dead=tasks.get(State.DEAD, 0),
    )


@shards.command("list")
@with_session
@routed(once)
def list_command(session: Session) -> Exit:
    """List the shards: where each is, whether it answers, and how many workers and tasks it has.

    Exits with 3 if a shard does not answer.
    """
    found = [look(each) for each in sessions_of(session)]
    if session.as_json:
        print_json({"namespace": session.settings.namespace, "shards": [asdict(each) for each in found]})
    else:
        print_table(HEADERS, [_row(each) for each in found], optional=("SCHEDULED",))
    for each in found if not session.as_json else ():
        if each.error:
            click.echo(f"rl: shard {each.shard}: {each.error}", err=True)
    return Exit.OK if all(each.answers for each in found) else Exit.STORE


def _row(found: ShardState) -> tuple[str, ...]:
    numbers = (found.workers, found.queued, found.running, found.scheduled, found.dead)
    shown = [f"{number:,}" if found.answers else "?" for number in numbers]
    return (str(found.shard), "yes" if found.answers else "NO", *shown, found.place)


@shards.command("check")
@with_session
@routed(once)
def check_command(session: Session) -> Exit:
    """Check that every task, workflow and schedule lies in the shard to which its id or name belongs, and that no other
    shard of the namespace was left behind by an earlier number of shards.

    Reads every key of the shards. Exits with 1 if something lies in the wrong place.
    """
    found: list[Misplaced] = []
    for each in sessions_of(session):
        found += misplaced(each)
    left = leftovers(session)
    if session.as_json:
        document = {"misplaced": [asdict(each) for each in found], "left": left}
        print_json({"ok": not found and not left, "shards": session.settings.shards, **document})
    else:
        _say_check(session, found, left)
    return Exit.PROBLEM if found or left else Exit.OK


def _say_check(session: Session, found: list[Misplaced], left: list[str]) -> None:
    for each in found[:SHOWN]:
        click.echo(f"{each.kind} {each.id} lies in shard {each.found_in}, but belongs to shard {each.belongs_to}")
    if len(found) > SHOWN:
        click.echo(f"and {len(found) - SHOWN:,} more")
    for namespace in left:
        click.echo(f"namespace {namespace!r} holds data, but is no shard of RELIER_SHARDS={session.settings.shards}")
    if not found and not left:
        click.echo(f"Everything lies in its shard: {plural(session.settings.shards, 'shard')} checked.")
        return
    click.echo(
        "Nobody finds these by their ids. Run the processes with the number of shards that wrote them until they have "
        "ended; see docs/how-to/shards.md."
    )


@shards.command("change")
@click.argument("number", type=click.IntRange(1, MOST_SHARDS))
@click.option("--to-urls", metavar="URLS", default="", help="Store URLs of the new shards, if they differ.")
@click.option("--forget", is_flag=True, help="Give up results and dead letters that nobody would find by their ids.")
@DRY_RUN
@with_session
@routed(once)
def change_command(session: Session, number: int, to_urls: str, forget: bool, dry_run: bool) -> Exit:
    """Change the number of shards of a drained namespace to NUMBER.

    RELIER_SHARDS must still have the present number. Refused while tasks, workflows or schedules are left, or nodes are
    alive. Afterwards, set RELIER_SHARDS to NUMBER everywhere, and start the workers.
    """
    present = session.settings.whole
    after = settings_after(present, number, to_urls)
    problems = [f"shard {each.settings.shard or 0}: {what}" for each in sessions_of(session) for what in left_in(each)]
    if not forget:
        problems += [
            f"shard {each.settings.shard or 0}: {plural(kept, 'ended task')} would not be found by id; replay or "
            f"discard dead ones, wait until results expire, or add --forget"
            for each in sessions_of(session)
            if (kept := ended_in(each))
        ]
    if problems:
        raise CommandFailure(f"the number of shards is still {present.shards}, because of:", Exit.PROBLEM, problems)
    if not dry_run:
        write_marks(present, after)
    if session.as_json:
        print_json({"from": present.shards, "to": number, "changed": not dry_run, "dry_run": dry_run})
    else:
        verb = "would have" if dry_run else "now has"
        click.echo(f"The namespace {verb} {plural(number, 'shard')}. Set RELIER_SHARDS={number} in all processes.")
    return Exit.OK
