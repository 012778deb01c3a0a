"""rl schedules pause, resume, run, remove and add."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import click

from relier import registry
from relier.cli.commands.schedules.shared import as_dict, named, next_due, operations_of
from relier.cli.output import plural, print_json
from relier.cli.session import DRY_RUN, CommandFailure, Exit, Session, with_session
from relier.cli.shards.routes import routed, to_schedule
from relier.errors import ScheduleDefinitionError
from relier.schedules.spec import spec_of
from relier.store.sync_wire import run_sync


@click.command()
@click.argument("name")
@DRY_RUN
@with_session
@routed(to_schedule())
def pause(session: Session, name: str, dry_run: bool) -> None:
    """Pause schedule NAME. It does not fire until you resume it. Tasks that it has fired continue."""
    _switch(session, name, "paused", dry_run)


@click.command()
@click.argument("name")
@DRY_RUN
@with_session
@routed(to_schedule())
def resume(session: Session, name: str, dry_run: bool) -> None:
    """Resume schedule NAME, from its next time. Occurrences that were due while it was paused do not run."""
    _switch(session, name, "active", dry_run)


def _switch(session: Session, name: str, state: str, dry_run: bool) -> None:
    operations, now_ms = operations_of(session)
    before = named(operations, name)
    changes = before.state.value != state
    if changes and not dry_run:
        session.run(session.ledger.open())
        before = run_sync(operations.pause(name) if state == "paused" else operations.resume(name))
    if session.as_json:
        answer = {"name": name, "state": before.state.value, "changed": changes and not dry_run}
        print_json(answer | ({"would_change": changes, "dry_run": True} if dry_run else {}))
        return
    verb = "is already" if not changes else "would be" if dry_run else "is now"
    after = f" Next: {next_due(before, now_ms)}." if before.next is not None and not dry_run else ""
    click.echo(f"Schedule {name!r} {verb} {state}.{after}")


@click.command()
@click.argument("name")
@with_session
@routed(to_schedule())
def run(session: Session, name: str) -> None:
    """Run the task of schedule NAME once, now. The schedule's times and history do not change."""
    operations, _ = operations_of(session)
    info = named(operations, name)
    session.run(session.ledger.open())
    task_id = run_sync(operations.run_now(name))
    if session.as_json:
        print_json({"name": name, "task": info.task, "id": task_id})
    else:
        click.echo(f"Task {info.task} was pushed to queue {info.queue!r} as {task_id}.")


@click.command()
@click.argument("name")
@DRY_RUN
@with_session
@routed(to_schedule())
def remove(session: Session, name: str, dry_run: bool) -> None:
    """Remove schedule NAME and its history. Tasks that it has fired continue."""
    operations, _ = operations_of(session)
    info = named(operations, name)
    if not dry_run:
        run_sync(operations.remove(name))
    if session.as_json:
        print_json({"name": name, "removed": not dry_run} | ({"dry_run": True} if dry_run else {}))
        return
    again = f" The code of {info.origin} creates it again when a worker starts." if info.origin else ""
    click.echo(f"Schedule {name!r} {'would be' if dry_run else 'was'} removed.{again}")


@click.command()
@click.argument("name")
@click.argument("task")
@click.option("--module", "-m", "modules", multiple=True, metavar="MODULE", help="Module that defines the task.")
@click.option("--cron", metavar="EXPRESSION", help="Cron expression with five fields, or six with seconds first.")
@click.option("--tz", metavar="ZONE", help="Time zone of --cron.  [default: UTC]")
@click.option("--every", type=float, metavar="SECONDS", help="Interval in seconds.")
@click.option("--at", metavar="TIME", help="One time, with its zone: 2027-01-01T09:00+01:00.")
@click.option(
    "--args", "arguments", metavar="JSON", help="Arguments: a JSON list (positional) or a JSON object (by name)."
)
@click.option(
    "--catch-up",
    type=click.Choice(["skip", "latest", "all"]),
    help="Which late occurrences run.  [default: latest]",
)
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip", "queue"]),
    help="What to do while the previous run has not ended.  [default: allow]",
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How late an occurrence may be and still run.",
)
@click.option("--queue", metavar="NAME", help="Queue, instead of the task's own.")
@with_session
@routed(to_schedule())
def add(session: Session, name: str, task: str, modules: Sequence[str], arguments: str | None, **given: Any) -> None:
    """Create or change schedule NAME, which runs TASK: `rl schedules add nightly shop.tasks.report --cron "0 3 * * *"`.

    Imports the module that defines the task, to read its parameters and options. By default, this is the part of TASK
    before the last dot.
    """
    found = _task_named(task, modules)
    operations, now_ms = operations_of(session)
    options = {word: value for word, value in given.items() if value is not None}
    if "at" in options:
        options["at"] = _moment(options["at"])
    session.run(session.ledger.open())
    info = run_sync(operations.create(spec_of(name, found, {**options, **_call(arguments)})))
    if session.as_json:
        print_json(as_dict(info))
    else:
        click.echo(f"Schedule {name!r} runs {info.task} ({info.when}). Next: {next_due(info, now_ms) or 'never'}.")


def _task_named(name: str, modules: Sequence[str]) -> Any:
    registry.load(modules or ([name.rpartition(".")[0]] if "." in name else []))
    found = registry.find(name)
    if found is None:
        known = [each.name for each in registry.known_tasks()]
        close = [*registry.namesakes(name), *get_close_matches(name, known, 1)]
        meant = (
            f"did you mean {close[0]}?" if close else f"it has {plural(len(known), 'task')}; give the module with -m"
        )
        raise CommandFailure(f"the imported code has no task {name!r}; {meant}", Exit.USAGE)
    return found


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ScheduleDefinitionError(
            f"--at {text!r} is not a time; write it with its zone, such as 2027-01-01T09:00+01:00"
        ) from None


def _call(arguments: str | None) -> dict[str, Any]:
    if arguments is None:
        return {}
    try:
        given = json.loads(arguments)
    except ValueError as error:
        raise ScheduleDefinitionError(
            f"--args is not JSON: {error}; write '[1, \"two\"]' or '{{\"day\": 1}}'"
        ) from None
    if isinstance(given, list):
        return {"args": given}
    if isinstance(given, dict):
        return {"kwargs": given}
    raise ScheduleDefinitionError(f"--args must be a JSON list or object, not {arguments!r:.60}")
