"""rl tasks: list and cancel tasks."""

from __future__ import annotations

from typing import Any

import click

from relier.cli.output import print_json, print_table, when
from relier.cli.session import Exit, Session, exit_code_of, with_session
from relier.cli.task_list import ORDER, TaskFilter, as_dict, list_options, list_tasks, print_list_footer
from relier.errors import RelierError, VersionConflictError
from relier.ledger.records import Operated, Record, Task
from relier.states import State

TRIES = 5


@click.group(invoke_without_command=True)
@click.option("--state", type=click.Choice([state.value for state in State]), help="Only tasks in this state.")
@list_options
@with_session
def tasks(session: Session, state: str | None, queue: str, name: str, limit: int, cursor: str | None) -> None:
    """List tasks, or cancel some.

    Without a command, lists tasks by state. Waiting tasks are in the order in which they run, ended tasks in the order
    in which they expire.
    """
    if click.get_current_context().invoked_subcommand:
        return
    wanted = TaskFilter([State(state)] if state else ORDER, queue, name)
    listing = list_tasks(session, wanted, limit, cursor)
    if session.as_json:
        print_json(
            {
                "namespace": session.settings.namespace,
                "tasks": [as_dict(record) for record in listing.records],
                "corrupt": listing.corrupt,
                "cursor": listing.cursor,
            }
        )
        return
    if listing.records:
        now_ms = session.run(session.ledger.stats()).now_ms
        print_table(HEADERS, [_row(record, now_ms) for record in listing.records])
    else:
        click.echo(f"No {state + ' ' if state else ''}tasks{_like(queue, name)} in {session.where}.")
    print_list_footer(listing)


HEADERS = ("ID", "NAME", "QUEUE", "STATE", "SINCE", "ATTEMPT", "WHERE / WHY")


def _row(record: Record, now_ms: int) -> tuple[str, ...]:
    where = record.reason
    if record.state is State.RUNNING:
        where = ("cancelling; " if "c" in record.flags else "") + record.worker_id
    since = when(record.moved_ms or record.spec.at_us // 1000, now_ms)
    return record.id, record.name, record.queue, record.state.value, since, str(record.attempt), where


def _like(queue: str, name: str) -> str:
    return (f" of queue {queue!r}" if queue else "") + (f" named {name!r}" if name else "")


@tasks.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@with_session
def cancel(session: Session, ids: tuple[str, ...]) -> Exit:
    """Cancel tasks. A waiting task ends at once; the worker of a running task is asked to stop it."""
    rows: list[dict[str, Any]] = []
    worst = Exit.OK
    for task_id in dict.fromkeys(ids):
        try:
            done = cancel_one(session, task_id)
            rows.append({"id": task_id, "outcome": done.verdict, "state": done.state, "error": None})
        except RelierError as error:
            rows.append({"id": task_id, "outcome": "refused", "state": None, "error": str(error)})
            worst = max(worst, exit_code_of(error))
            if exit_code_of(error) is Exit.STORE:
                break
    if session.as_json:
        print_json({"namespace": session.settings.namespace, "tasks": rows})
    else:
        for row in rows:
            _print(row)
    return worst


def cancel_one(session: Session, task_id: str) -> Operated:
    """Cancel a task, whatever it does in the meantime: read it again if it changed since it was read."""
    for left in reversed(range(TRIES)):
        task = session.run(session.ledger.get(task_id))
        try:
            done = session.run(session.ledger.cancel(task_id, task.record.version))
        except VersionConflictError:
            if not left:
                raise
            continue
        if done.verdict == "ok" and task.record.spec.max_resurrections is not None:  # only members of a chord have one
            _notify_chord(session, task)
        return done
    raise AssertionError("unreachable")


def _notify_chord(session: Session, task: Task) -> None:
    """Tell a Celery chord that this member will not finish. For a running member its worker does that."""
    try:
        from relier.celery.sending.control import part_of_cancelled
    except ImportError:  # without Celery there are no chords
        return
    part = part_of_cancelled(task, session.settings, session.keyring)
    if part is not None:
        session.run(session.ledger.submit([part]))


def _print(row: dict[str, Any]) -> None:
    said = {
        "ok": "cancelled.",
        "asked": "is running: its worker was asked to stop it.",
        "repeat": "is running: its worker was already asked to stop it."
        if row["state"] == "running"
        else "was already cancelled.",
    }
    if row["error"]:
        click.echo(f"rl: {row['error']}", err=True)
    else:
        click.echo(f"{row['id']} {said[row['outcome']]}")
