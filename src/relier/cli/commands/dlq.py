"""rl dlq: list, show, replay and discard dead letters."""

from __future__ import annotations

from typing import IO

import click

from relier.cli.dead_letter_selection import (
    Selection,
    apply_move,
    choose,
    confirm,
    read_rate,
    report_outcomes,
    selection_options,
)
from relier.cli.namespace_reads import NamespaceReads
from relier.cli.output import print_json, print_table, printable, span, when
from relier.cli.payload_view import describe, edited, message_in, pretty, with_redacted_failures
from relier.cli.session import CommandFailure, Exit, Session, with_session
from relier.cli.task_list import TaskFilter, as_dict, list_options, list_tasks, print_list_footer
from relier.failure import read_failure
from relier.ledger.pages import read_stats, read_steps
from relier.ledger.records import HistoryEntry, Record, Task, new_task_id
from relier.ledger.replies import read_history
from relier.states import State


@click.group(invoke_without_command=True)
@click.option("--reason", default="", metavar="REASON", help="Only tasks with this reason.")
@list_options
@with_session
def dlq(session: Session, reason: str, queue: str, name: str, limit: int, cursor: str | None) -> None:
    """List dead letters, or show, replay and discard them.

    Without a command, lists dead letters, the ones that expire first at the top.
    """
    if click.get_current_context().invoked_subcommand:
        return
    listing = list_tasks(session, TaskFilter([State.DEAD], queue, name, reason), limit, cursor)
    stats = read_stats(session.run, session.ledger)
    said = NamespaceReads(session.store, session.ledger).last_history_lines([record.id for record in listing.records])
    messages = [
        message_in(session, record, read_history(line).detail) if line else ""
        for record, line in zip(listing.records, said, strict=True)
    ]
    if session.as_json:
        rows = [
            as_dict(record) | {"message": message} for record, message in zip(listing.records, messages, strict=True)
        ]
        print_json(
            {
                "namespace": session.settings.namespace,
                "total": stats.ended["dead"],
                "tasks": rows,
                "corrupt": listing.corrupt,
                "cursor": listing.cursor,
            }
        )
        return
    if listing.records:
        rows_of = zip(listing.records, messages, strict=True)
        print_table(HEADERS, [_row(record, message, stats.now_ms) for record, message in rows_of])
        click.echo(f"{len(listing.records):,} of {stats.ended['dead']:,} dead letters.")
    else:
        which = " that match" if reason or queue or name else ""
        click.echo(f"No dead letters{which} in {session.where}.")
    print_list_footer(listing)


HEADERS = ("ID", "NAME", "REASON", "MESSAGE", "DIED", "ATTEMPTS")


def _row(record: Record, message: str, now_ms: int) -> tuple[str, ...]:
    return record.id, record.name, record.reason, message, when(record.moved_ms, now_ms), str(record.attempt)


# --- one dead letter ---------------------------------------------------------------------------------------------


@dlq.command()
@click.argument("task_id", metavar="ID")
@with_session
def show(session: Session, task_id: str) -> None:
    """Show a dead task: reason, traceback, attempts and payload."""
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
        "attempts": [
            {
                "attempt": entry.attempt,
                "ended_by": entry.move,
                "worker": entry.worker_id,
                "began_ms": entry.since_ms or None,
                "ended_ms": entry.at_ms,
                "type": read_failure(entry.detail).kind or None,
                "message": read_failure(entry.detail).message,
                "traceback": read_failure(entry.detail).traceback or None,
            }
            for entry in task.history
        ],
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
        print_table(ATTEMPTS, [_attempt(entry, now_ms) for entry in task.history], ids=("WORKER",))
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
@selection_options
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
def replay(
    session: Session,
    selection: Selection,
    payload: IO[str] | None,
    schema_version: int | None,
    rate: float | None,
    fresh: bool,
) -> Exit:
    """Queue dead tasks again, selected by id or by filter."""
    body = None
    if payload is not None:
        if len(selection.ids) != 1:
            raise click.UsageError("--payload needs exactly one ID")
        task = session.run(session.ledger.get(selection.ids[0]))
        body = edited(session, task, payload.read(), schema_version)
    elif schema_version is not None:
        raise click.UsageError("--schema-version needs --payload")
    chosen = choose(session, selection)
    confirm(session, selection, chosen, "Replay")
    outcomes = apply_move(
        session,
        chosen,
        lambda task: session.ledger.replay(task.id, task.version, new_task_id(), body, fresh=fresh),
        rate=rate,
    )
    return report_outcomes(session, chosen, outcomes, "replayed")


@dlq.command()
@selection_options
@with_session
def discard(session: Session, selection: Selection) -> Exit:
    """Delete dead tasks permanently, selected by id or by filter."""
    chosen = choose(session, selection)
    confirm(session, selection, chosen, "Permanently delete")
    outcomes = apply_move(session, chosen, lambda task: session.ledger.discard(task.id, task.version))
    return report_outcomes(session, chosen, outcomes, "discarded")
