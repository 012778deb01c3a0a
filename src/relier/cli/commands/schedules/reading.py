"""rl schedules list, next and history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from relier.cli.commands.schedules.shared import as_dict, due_in, firing_dict, named, next_due, operations_of, to_ms
from relier.cli.output import ago, print_json, when
from relier.cli.session import Session, with_session
from relier.cli.shards.routes import routed, to_schedule
from relier.cli.table import print_table
from relier.ledger.schedule_records import NATIVE
from relier.schedules.views import ScheduleFiring, ScheduleInfo
from relier.store.sync_wire import run_sync

HEADERS = ("NAME", "STATE", "SCHEDULE", "TASK", "NEXT", "LAST", "GROUP", "ORIGIN")
SHORT = {"skipped_overlap": "skipped"}
IN_WORDS = {"skipped_overlap": "skipped: previous run not ended", "duplicate": "duplicate: the task exists"}


@click.command("list")
@with_session
def list_command(session: Session) -> None:
    """List schedules with their next time and the outcome of their last occurrence."""
    operations, now_ms = operations_of(session)
    found = run_sync(operations.list_all())
    if session.as_json:
        rows = [as_dict(info) for info in found]
        print_json({"namespace": session.settings.namespace, "now_ms": now_ms, "schedules": rows})
    elif found:
        print_table(HEADERS, [_row(info, now_ms) for info in found], optional=("ORIGIN", "GROUP", "LAST", "TASK"))
        for info in found:
            if info.problem:
                click.echo(f"{info.name}: {info.problem}")
    else:
        click.echo(f"No schedules in {session.where}: none was created, and no worker has declared one.")


def _row(info: ScheduleInfo, now_ms: int) -> tuple[str, ...]:
    last = info.history[0] if info.history else None
    return (
        info.name,
        info.state.value,
        info.when,
        info.task,
        next_due(info, now_ms),
        f"{SHORT.get(last.outcome, last.outcome)} {ago(to_ms(last.at), now_ms)}" if last else "",
        "" if info.group == NATIVE else info.group,
        info.origin,
    )


@click.command("next")
@click.argument("name")
@click.option("-n", "count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many times to show.")
@with_session
@routed(to_schedule())
def next_command(session: Session, name: str, count: int) -> None:
    """Show the next times of schedule NAME, in its own time zone and in UTC."""
    operations, now_ms = operations_of(session)
    info = named(operations, name)
    times = run_sync(operations.next_times(name, count))
    if session.as_json:
        print_json({"name": name, "state": info.state.value, "times": [at.isoformat() for at in times]})
        return
    if info.state != "active":
        click.echo(f"Schedule {name!r} is {info.state.value}; if it were active, it would be due:")
    if times:
        _print_times(times, now_ms)
    else:
        click.echo(f"Schedule {name!r} ({info.when}) has no further time.")


def _print_times(times: Sequence[datetime], now_ms: int) -> None:
    rows = [(f"{at:%a %Y-%m-%d %H:%M:%S %Z}", f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}", at) for at in times]
    in_utc = all(at.tzname() == "UTC" for at in times)
    headers = ("TIME", "DUE") if in_utc else ("TIME", "UTC", "DUE")
    due = [(local, *(() if in_utc else (utc,)), due_in(to_ms(at), now_ms)) for local, utc, at in rows]
    print_table(headers, due)


@click.command()
@click.argument("name")
@with_session
@routed(to_schedule())
def history(session: Session, name: str) -> None:
    """Show the last 20 occurrences of schedule NAME and their outcomes.

    ID is the task that ran. For a skipped occurrence, it is the run that had not ended; for a duplicate, the task that
    already existed.
    """
    operations, now_ms = operations_of(session)
    info = named(operations, name)
    if session.as_json:
        print_json({"name": name, "history": [firing_dict(firing) for firing in info.history]})
    elif info.history:
        headers = ("WHEN", "OUTCOME", "INTENDED", "ID")
        print_table(headers, [_history_row(firing, now_ms) for firing in info.history], optional=("INTENDED",))
    else:
        click.echo(f"Schedule {name!r} has not fired yet.")


def _history_row(firing: ScheduleFiring, now_ms: int) -> tuple[str, ...]:
    more = "+" if firing.skipped >= 1000 else ""
    known = IN_WORDS.get(firing.outcome, firing.outcome)
    outcome = f"missed {firing.skipped}{more}" if firing.outcome == "missed" else known
    return when(to_ms(firing.at), now_ms), outcome, f"{firing.intended.astimezone():%b %d %H:%M:%S}", firing.task_id
