"""rl dlq: list, show, replay, edit and discard dead letters."""

from __future__ import annotations

from typing import IO, Any

import click

from relier.cli.command_groups import DefaultGroup, store_options
from relier.cli.find.task_ids import full_id
from relier.cli.find.task_names import did_you_mean
from relier.cli.namespace_reads import NamespaceReads
from relier.cli.output import ago, print_json, printable, span, when
from relier.cli.payload_view import describe, editable, edited, message_in, pretty, with_redacted_failures
from relier.cli.session import CommandFailure, Exit, Session, with_session
from relier.cli.shards.routes import one_shard_with, routed, to_selection, to_task
from relier.cli.table import print_table
from relier.cli.task_list import (
    TaskFilter,
    as_dict,
    history_dict,
    list_options,
    list_tasks,
    print_list_footer,
    totals,
)
from relier.cli.task_selection import (
    SelectedTask,
    Selection,
    apply_move,
    choose,
    confirm,
    read_rate,
    report_dry_run,
    report_outcomes,
    selection_options,
)
from relier.failure import read_failure
from relier.ledger.pages import read_stats, read_steps
from relier.ledger.records import HistoryEntry, Record, Task, new_task_id
from relier.ledger.replies import read_history
from relier.states import State


@click.group(cls=DefaultGroup, default="list", aliases={"inspect": "show", "ls": "list", "purge": "discard"})
@store_options
def dlq(**_: Any) -> None:
    """List, show, replay, edit and discard dead letters.

    Without a command, lists dead letters, with the options of `rl dlq list`.
    """


@dlq.command("list")
@list_options
@with_session
@routed(one_shard_with("cursor"))
def list_command(session: Session, limit: int, cursor: str | None, **filters: str) -> None:
    """List dead letters, the latest first."""
    wanted = TaskFilter([State.DEAD], **filters)
    listing = list_tasks(session, wanted, limit, cursor)
    stats = read_stats(session.run, session.ledger)
    records = listing.records
    said = NamespaceReads(session.store, session.ledger).last_history_lines([record.id for record in records])
    messages = [
        message_in(session, record, read_history(line).detail) if line else ""
        for record, line in zip(records, said, strict=True)
    ]
    if session.as_json:
        rows = [as_dict(record) | {"message": message} for record, message in zip(records, messages, strict=True)]
        print_json(
            {
                "namespace": session.settings.namespace,
                "total": stats.ended["dead"],
                "tasks": rows,
                "corrupt": listing.corrupt,
                "cursor": listing.cursor,
                "totals": totals(stats),
            }
        )
        return
    if records:
        rows_of = zip(records, messages, strict=True)
        print_table(HEADERS, [_row(*pair, stats.now_ms) for pair in rows_of], optional=("ATTEMPT",))
        click.echo(f"{len(records):,} of {stats.ended['dead']:,} dead letters.")
    else:
        hint = did_you_mean(session, wanted)
        click.echo(f"No dead letters{wanted} in {session.where}.{hint}")
    print_list_footer(session, listing)


HEADERS = ("ID", "NAME", "REASON", "DIED", "ATTEMPT", "MESSAGE")


def _row(record: Record, message: str, now_ms: int) -> tuple[str, ...]:
    return record.id, record.name, record.reason, ago(record.moved_ms, now_ms), str(record.attempt), message


# --- one dead letter ---------------------------------------------------------------------------------------------


@dlq.command()
@click.argument("task_id", metavar="ID")
@with_session
@routed(to_task())
def show(session: Session, task_id: str) -> None:
    """Show a dead task: reason, traceback, attempts and payload."""
    task_id = full_id(session, task_id, dead=True)
    task = with_redacted_failures(session, session.run(session.ledger.get(task_id)))
    if task.record.state is not State.DEAD:
        raise CommandFailure(f"task {task_id} is {task.record.state}, not dead; see `rl why {task_id}`", Exit.PROBLEM)
    if session.as_json:
        print_json(_show_dict(session, task))
        return
    _show(session, task)


def _show_dict(session: Session, task: Task) -> dict[str, object]:
    last = read_failure(task.history[-1].detail) if task.history else None
    return as_dict(task.record) | {
        "message": last.message if last else "",
        "traceback": (last.traceback if last else "") or None,
        "payload": describe(session, task),
        "checkpoint_bytes": len(task.checkpoint) if task.checkpoint is not None else None,
        "steps": sorted(read_steps(session.run, session.ledger, task)),
        "attempts": [history_dict(entry) for entry in task.history],
    }


def _show(session: Session, task: Task) -> None:
    record, now_ms = task.record, session.run(session.ledger.stats()).now_ms
    last = read_failure(task.history[-1].detail) if task.history else None
    message = f": {last.message}" if last and last.message else ""
    click.secho(f"{record.name}  {record.id}", bold=True)
    click.echo(f"Reason: {printable(record.reason + message)}")
    click.echo(f"Died {when(record.moved_ms, now_ms)}, accepted {when(record.spec.at_us // 1000, now_ms)}.")
    click.echo(f"Queue {record.queue}, priority {record.spec.priority}, attempt {record.attempt}.")
    if task.checkpoint is not None or task.steps:
        kept = [f"a checkpoint of {len(task.checkpoint):,} bytes"] if task.checkpoint is not None else []
        kept += [f"steps {', '.join(sorted(task.steps))}{', …' if task.steps_left else ''}"] if task.steps else []
        click.echo(f"Saved: {' and '.join(kept)}. A replay continues from there, unless you add --fresh.")
    if last and last.traceback:
        click.echo(f"\n{printable(last.traceback.rstrip())}")
    if task.history:
        click.echo()
        print_table(ATTEMPTS, [_attempt(entry, now_ms) for entry in task.history], optional=("STARTED", "WORKER"))
    click.echo(f"\nPayload:\n{pretty(session, task)}")
    click.echo(f"\nTo replay it: rl dlq replay {record.id}")


ATTEMPTS = ("ATTEMPT", "STARTED", "LASTED", "ENDED BY", "WORKER", "WHAT HAPPENED")


def _attempt(entry: HistoryEntry, now_ms: int) -> tuple[str, ...]:
    failure = read_failure(entry.detail)
    return (
        str(entry.attempt),
        when(entry.since_ms, now_ms),
        span(entry.at_ms - entry.since_ms) if entry.since_ms else "",
        entry.move,
        entry.worker_id,
        ": ".join(part for part in (failure.name, failure.message) if part),
    )


# --- several dead letters ----------------------------------------------------------------------------------------


@dlq.command()
@selection_options(State.DEAD)
@click.option(
    "--payload",
    type=click.File("r"),
    metavar="FILE",
    help='Replay one task with new arguments: JSON [[args], {"name": value}] from FILE, or - for stdin.',
)
@click.option("--schema-version", type=click.IntRange(0), help="Schema version of the arguments in --payload.")
@click.option("--rate", callback=read_rate, metavar="N/s", help="Maximum rate: 50, 50/s or 300/m.")
@click.option("--fresh", is_flag=True, help="Discard checkpoints and steps, and start over.")
@with_session
@routed(to_selection)
def replay(
    session: Session,
    selection: Selection,
    payload: IO[str] | None,
    schema_version: int | None,
    rate: float | None,
    fresh: bool,
) -> Exit:
    """Queue dead tasks again, selected by id or by filter."""
    if payload is not None and len(selection.ids) != 1:
        raise click.UsageError("--payload needs exactly one ID")
    if payload is None and schema_version is not None:
        raise click.UsageError("--schema-version needs --payload")
    chosen = choose(session, selection)
    body = None
    if payload is not None and chosen[0].trouble is None:
        body = edited(session, session.run(session.ledger.get(chosen[0].id)), payload.read(), schema_version)
    if selection.dry_run:
        return report_dry_run(session, chosen, "replayed")
    confirm(session, selection, chosen, "Replay")
    return _replay(session, chosen, body, fresh=fresh, rate=rate)


def _replay(
    session: Session, chosen: list[SelectedTask], body: bytes | None, *, fresh: bool, rate: float | None = None
) -> Exit:
    outcomes = apply_move(
        session,
        chosen,
        lambda task: session.ledger.replay(task.id, task.version, new_task_id(), body, fresh=fresh),
        rate=rate,
    )
    return report_outcomes(session, chosen, outcomes, "replayed")


@dlq.command()
@click.argument("task_id", metavar="ID")
@click.option("--fresh", is_flag=True, help="Discard checkpoints and steps, and start over.")
@click.option("--dry-run", is_flag=True, help="Show the new arguments; change nothing.")
@with_session
@routed(to_task())
def edit(session: Session, task_id: str, fresh: bool, dry_run: bool) -> Exit:
    """Edit the arguments of a dead task in $EDITOR, then replay the task.

    Nothing happens if you leave the text as it is. In scripts use `rl dlq replay ID --payload FILE`.
    """
    task_id = full_id(session, task_id, dead=True)
    task = session.run(session.ledger.get(task_id))
    if task.record.state is not State.DEAD:
        raise CommandFailure(f"task {task_id} is {task.record.state}, not dead; see `rl why {task_id}`", Exit.PROBLEM)
    before = editable(session, task)
    after = click.edit(before, extension=".json")
    if after is None or after.strip() == before.strip():
        click.echo("Nothing was changed, and the task was not replayed.", err=True)
        return Exit.PROBLEM
    body = edited(session, task, after, None)
    chosen = [SelectedTask(task_id, task.record.version, task.record.reason, task.record.name)]
    if dry_run:
        if not session.as_json:
            click.echo(printable(after.strip()))
        return report_dry_run(session, chosen, "replayed")
    return _replay(session, chosen, body, fresh=fresh)


@dlq.command()
@selection_options(State.DEAD)
@with_session
@routed(to_selection)
def discard(session: Session, selection: Selection) -> Exit:
    """Delete dead tasks permanently, selected by id or by filter."""
    chosen = choose(session, selection)
    if selection.dry_run:
        return report_dry_run(session, chosen, "discarded")
    confirm(session, selection, chosen, "Permanently delete")
    outcomes = apply_move(session, chosen, lambda task: session.ledger.discard(task.id, task.version))
    return report_outcomes(session, chosen, outcomes, "discarded")
