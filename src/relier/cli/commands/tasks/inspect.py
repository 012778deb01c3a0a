"""rl tasks inspect: everything that is known about one task."""

from __future__ import annotations

from typing import Any

import click

from relier.cli.commands.why import look, report_unreadable
from relier.cli.find.task_ids import full_id
from relier.cli.output import plural, print_json, print_sentences, printable, when
from relier.cli.payload_view import describe, pretty, with_redacted_failures
from relier.cli.session import Exit, Session, with_session
from relier.cli.shards.routes import routed, to_task
from relier.cli.task_list import as_dict, history_dict, losses
from relier.cli.task_timeline import Surroundings, timeline
from relier.errors import CorruptRecordError, TaskNotFoundError
from relier.ledger.pages import read_steps
from relier.ledger.records import Task


@click.command()
@click.argument("task_id", metavar="ID")
@with_session
@routed(to_task())
def inspect(session: Session, task_id: str) -> Exit:
    """Show one task: its state, queue, attempts, payload and history."""
    task_id = full_id(session, task_id)
    try:
        task, around = look(session, task_id)
    except (TaskNotFoundError, CorruptRecordError) as error:
        return report_unreadable(session, task_id, error)
    task = with_redacted_failures(session, task)
    if session.as_json:
        print_json(_document(session, task, around))
    else:
        _print(session, task, around)
    return Exit.OK


def _document(session: Session, task: Task, around: Surroundings) -> dict[str, Any]:
    return as_dict(task.record) | {
        "due_ms": around.due_ms,
        "kept_until_ms": around.kept_until_ms,
        "progress": task.record.progress or None,
        "payload": describe(session, task),
        "result_bytes": len(task.result) if task.result is not None else None,
        "checkpoint_bytes": len(task.checkpoint) if task.checkpoint is not None else None,
        "steps": sorted(read_steps(session.run, session.ledger, task)),
        "attempts": [history_dict(entry) for entry in task.history],
        "story": [{"at_ms": line.at_ms, "says": line.text} for line in timeline(task, around)],
    }


def _print(session: Session, task: Task, around: Surroundings) -> None:
    record = task.record
    click.secho(f"{printable(record.name)}  {record.id}", bold=True)
    facts = {
        "State": record.state.value,
        "Queue": f"{record.queue}, priority {record.spec.priority}",
        "Accepted": when(record.spec.at_us // 1000, around.now_ms),
        "Attempt": _attempts(task),
        "Worker": record.worker_id,
        "Key": record.more.get("key", ""),
        "Progress": record.progress,
        "Saved": _saved(task),
    }
    for name, value in facts.items():
        if value:
            click.echo(f"{name + ':':10}{printable(value)}")
    click.echo(f"\nPayload:\n{pretty(session, task)}\n")
    print_sentences(line.text for line in timeline(task, around))


def _attempts(task: Task) -> str:
    counts = losses(task.record)
    words = {"retries": ("retry", "retries"), "deaths": ("death",), "resurrections": ("resurrection",)}
    said = [plural(n, *words[name]) for name, n in counts.items() if n]
    return ", ".join([str(task.record.attempt), *said])


def _saved(task: Task) -> str:
    kept = [f"a checkpoint of {plural(len(task.checkpoint), 'byte')}"] if task.checkpoint is not None else []
    kept += [f"steps {', '.join(sorted(task.steps))}{', …' if task.steps_left else ''}"] if task.steps else []
    kept += [f"a result of {plural(len(task.result), 'byte')}"] if task.result is not None else []
    return " and ".join(kept)
