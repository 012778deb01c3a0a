"""rl tasks: list tasks, cancel some."""

from __future__ import annotations

from typing import Any

import click

from relier.cli.output import print_json, print_table, when
from relier.cli.session import Exit, Session, exit_code_of, with_session
from relier.cli.task_list import ORDER, Wanted, as_dict, list_options, list_tasks, tell_rest
from relier.errors import RelierError, VersionConflictError
from relier.ledger.records import Operated, Record, Task
from relier.states import State

TRIES = 5


@click.group(invoke_without_command=True)
@click.option("--state", type=click.Choice([state.value for state in State]), help="Only tasks in this state.")
@list_options
@with_session
def tasks(session: Session, state: str | None, queue: str, name: str, limit: int, cursor: str | None) -> None:
    """Tasks. `rl tasks` alone lists them; the command below cancels some.

    Within a state the order is the ledger's: what runs next comes first, and of ended tasks what is forgotten next.
    """
    if click.get_current_context().invoked_subcommand:
        return
    wanted = Wanted([State(state)] if state else ORDER, queue, name)
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
    tell_rest(listing)


HEADERS = ("ID", "NAME", "QUEUE", "STATE", "SINCE", "ATTEMPT", "WHERE / WHY")


def _row(record: Record, now_ms: int) -> tuple[str, ...]:
    where = record.reason
    if record.state is State.RUNNING:
        where = ("asked to cancel; " if "c" in record.flags else "") + record.worker_id
    since = when(record.moved_ms or record.spec.at_us // 1000, now_ms)
    return record.id, record.name, record.queue, record.state.value, since, str(record.attempt), where


def _like(queue: str, name: str) -> str:
    return (f" of queue {queue!r}" if queue else "") + (f" named {name!r}" if name else "")


@tasks.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@with_session
def cancel(session: Session, ids: tuple[str, ...]) -> Exit:
    """Cancel tasks. One that waits ends now; one that runs is asked to end, and its worker is told."""
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
            _tell(row)
    return worst


def cancel_one(session: Session, task_id: str) -> Operated:
    """A person wants it ended whatever it does meanwhile: where it moved on since it was read, read it again."""
    for left in reversed(range(TRIES)):
        task = session.run(session.ledger.get(task_id))
        try:
            done = session.run(session.ledger.cancel(task_id, task.record.version))
        except VersionConflictError:
            if not left:
                raise
            continue
        if done.verdict == "ok" and task.record.spec.max_resurrections is not None:  # as every part of a chord has
            _tell_chord(session, task)
        return done
    raise AssertionError("unreachable")


def _tell_chord(session: Session, task: Task) -> None:
    """A Celery chord hears that a part of it will not come; whoever runs a part hears of it by its worker."""
    try:
        from relier.celery.sending.control import part_of_cancelled
    except ImportError:  # where nobody has Celery there are no chords
        return
    part = part_of_cancelled(task, session.settings, session.keyring)
    if part is not None:
        session.run(session.ledger.submit([part]))


def _tell(row: dict[str, Any]) -> None:
    said = {
        "ok": "is cancelled.",
        "asked": "runs; its worker was asked to end it, and it ends when that answers or its lease runs out.",
        "repeat": "was asked to end before." if row["state"] == "running" else "was cancelled before.",
    }
    if row["error"]:
        click.echo(f"rl: {row['error']}", err=True)
    else:
        click.echo(f"{row['id']} {said[row['outcome']]}")
