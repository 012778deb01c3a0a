"""rl dlq: dead letters. List, show, replay, discard."""

from __future__ import annotations

from typing import IO

import click

from relier.cli.dead_letter_selection import Selection, carry_out, choose, confirm, read_rate, selection_options, tell
from relier.cli.namespace_reads import Reads
from relier.cli.output import harmless, print_json, print_table, span, when
from relier.cli.payload_view import describe, edited, message_in, pretty, with_failures_seen
from relier.cli.session import Exit, Failure, Session, with_session
from relier.cli.task_list import Wanted, as_dict, list_options, list_tasks, tell_rest
from relier.failure import read_failure
from relier.ledger.pages import read_stats, read_steps
from relier.ledger.records import HistoryEntry, Record, Task, new_task_id
from relier.ledger.replies import read_history
from relier.states import State


@click.group(invoke_without_command=True)
@click.option("--reason", default="", metavar="REASON", help="Only tasks that died of this.")
@list_options
@with_session
def dlq(session: Session, reason: str, queue: str, name: str, limit: int, cursor: str | None) -> None:
    """Dead letters. `rl dlq` alone lists them; the commands below show, replay and discard.

    The list begins with those that will be forgotten first.
    """
    if click.get_current_context().invoked_subcommand:
        return
    listing = list_tasks(session, Wanted([State.DEAD], queue, name, reason), limit, cursor)
    stats = read_stats(session.run, session.ledger)
    said = Reads(session.store, session.ledger).last_words([record.id for record in listing.records])
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
    tell_rest(listing)


HEADERS = ("ID", "NAME", "REASON", "MESSAGE", "DIED", "ATTEMPTS")


def _row(record: Record, message: str, now_ms: int) -> tuple[str, ...]:
    return record.id, record.name, record.reason, message, when(record.moved_ms, now_ms), str(record.attempt)


# --- one of them -------------------------------------------------------------------------------------------------


@dlq.command()
@click.argument("task_id", metavar="ID")
@with_session
def show(session: Session, task_id: str) -> None:
    """All that is known of one dead task: reason, traceback, attempts, payload."""
    task = with_failures_seen(session, session.run(session.ledger.get(task_id)))
    if task.record.state is not State.DEAD:
        raise Failure(f"task {task_id} is {task.record.state}, not dead; see `rl why {task_id}`", Exit.PROBLEM)
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
    click.echo(f"Dead of {harmless(record.reason + message)}")
    click.echo(f"Died {when(record.moved_ms, now_ms)}, accepted {when(record.spec.at_us // 1000, now_ms)}.")
    click.echo(f"Queue {record.queue}, priority {record.spec.priority}, attempt {record.attempt}.")
    if task.checkpoint is not None or task.steps:
        kept = [f"a checkpoint of {len(task.checkpoint):,} bytes"] if task.checkpoint is not None else []
        kept += [f"steps {', '.join(sorted(task.steps))}{', …' if task.steps_left else ''}"] if task.steps else []
        click.echo(f"It keeps {' and '.join(kept)}: a replay goes on from there, unless --fresh.")
    if last and last.traceback:
        click.echo(f"\n{harmless(last.traceback.rstrip())}")
    if task.history:
        click.echo()
        print_table(ATTEMPTS, [_attempt(entry, now_ms) for entry in task.history], ids=("WORKER",))
    click.echo(f"\nPayload:\n{pretty(session, task)}")
    click.echo(f"\nReplay it: rl dlq replay {record.id}")


ATTEMPTS = ("ATTEMPT", "BEGAN", "LASTED", "ENDED BY", "WORKER", "WHAT HAPPENED")


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


# --- many of them ------------------------------------------------------------------------------------------------


@dlq.command()
@selection_options
@click.option(
    "--payload",
    type=click.File("r"),
    metavar="FILE",
    help='Replay one ID with other arguments: JSON [[args], {"name": value}] from a file, or - for stdin.',
)
@click.option("--schema-version", type=click.IntRange(0), help="With --payload: the version of the arguments given.")
@click.option("--rate", callback=read_rate, metavar="N/s", help="At most so many a second (50, 50/s, 300/m).")
@click.option("--fresh", is_flag=True, help="Forget checkpoints and steps: begin from the start.")
@with_session
def replay(
    session: Session,
    selection: Selection,
    payload: IO[str] | None,
    schema_version: int | None,
    rate: float | None,
    fresh: bool,
) -> Exit:
    """Send dead tasks round again, by their ids or by what they died of."""
    body = None
    if payload is not None:
        if len(selection.ids) != 1:
            raise click.UsageError("--payload goes with exactly one ID")
        task = session.run(session.ledger.get(selection.ids[0]))
        body = edited(session, task, payload.read(), schema_version)
    elif schema_version is not None:
        raise click.UsageError("--schema-version goes with --payload")
    chosen = choose(session, selection)
    confirm(session, selection, chosen, "Replay")
    outcomes = carry_out(
        session,
        chosen,
        lambda task: session.ledger.replay(task.id, task.version, new_task_id(), body, fresh=fresh),
        rate=rate,
    )
    return tell(session, chosen, outcomes, "replayed")


@dlq.command()
@selection_options
@with_session
def discard(session: Session, selection: Selection) -> Exit:
    """Remove dead tasks for good, by their ids or by what they died of."""
    chosen = choose(session, selection)
    confirm(session, selection, chosen, "Remove for good")
    outcomes = carry_out(session, chosen, lambda task: session.ledger.discard(task.id, task.version))
    return tell(session, chosen, outcomes, "discarded")
