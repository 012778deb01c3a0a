"""rl tasks cancel: cancel tasks, by id or by filter."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from relier.cli.find.task_ids import full_ids
from relier.cli.output import plural, print_json, progress_bar
from relier.cli.session import Exit, Session, exit_code_of, with_session
from relier.cli.shards.routes import routed, to_selection
from relier.cli.task_selection import Selection, choose, confirm, report_dry_run, selection_options
from relier.errors import RelierError, VersionConflictError
from relier.ledger.records import Operated, Task
from relier.states import State

TRIES = 5
SAID = {
    "ok": "cancelled.",
    "asked": "is running: its worker was asked to stop it.",
    "asked before": "is running: its worker was already asked to stop it.",
    "repeat": "was already cancelled.",
}


@click.command()
@selection_options(State.RUNNING, State.QUEUED, State.SCHEDULED)
@with_session
@routed(to_selection)
def cancel(session: Session, selection: Selection) -> Exit:
    """Cancel tasks. A waiting task ends at once; the worker of a running task is asked to stop it."""
    if selection.dry_run:
        return report_dry_run(session, choose(session, selection), "cancelled")
    if selection.by_filter:
        chosen = choose(session, selection)
        confirm(session, selection, chosen, "Cancel")
        ids = [task.id for task in chosen]
    else:
        ids = list(dict.fromkeys(full_ids(session, selection.ids)))
    rows = _cancel_all(session, ids)
    if session.as_json:
        shown = [{name: value for name, value in row.items() if name != "code"} for row in rows]
        print_json({"namespace": session.settings.namespace, "tasks": shown})
    elif selection.by_filter:
        _print_sum(rows, len(ids))
    else:
        for row in rows:
            _print(row)
    return max((row["code"] for row in rows), default=Exit.OK)


def _cancel_all(session: Session, ids: list[str]) -> list[dict[str, Any]]:
    """Cancel each task. Stop once the store cannot be reached."""
    rows: list[dict[str, Any]] = []
    with progress_bar("Cancelling", len(ids)) as advance:
        for task_id in ids:
            try:
                done = cancel_one(session, task_id)
                row = {"outcome": done.verdict, "state": done.state, "error": None, "code": Exit.OK}
            except RelierError as error:
                row = {"outcome": "refused", "state": None, "error": str(error), "code": exit_code_of(error)}
            rows.append({"id": task_id, **row})
            advance(1)
            if row["code"] is Exit.STORE:
                break
    return rows


def cancel_one(session: Session, task_id: str) -> Operated:
    """Cancel a task even if it changes meanwhile: read it again, and try again."""
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
    if row["error"]:
        click.echo(f"rl: {row['error']}", err=True)
    else:
        before = row["outcome"] == "repeat" and row["state"] == "running"
        click.echo(f"{row['id']} {SAID['asked before' if before else row['outcome']]}")


def _print_sum(rows: list[dict[str, Any]], wanted: int) -> None:
    for error in dict.fromkeys(row["error"] for row in rows if row["error"]):
        click.echo(f"rl: {error}", err=True)
    outcomes = Counter(row["outcome"] for row in rows)
    asked = f", and {plural(outcomes['asked'], 'running one')} asked to stop" if outcomes["asked"] else ""
    click.echo(f"{plural(outcomes['ok'], 'task')} cancelled{asked}, of {wanted:,} selected.")
