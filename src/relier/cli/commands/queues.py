"""rl queues: list, pause and resume queues."""

from __future__ import annotations

from typing import Any

import click

from relier.cli.command_groups import DefaultGroup, store_options
from relier.cli.node_view import WorkerView
from relier.cli.output import ago, plural, print_json
from relier.cli.session import DRY_RUN, Session, with_session
from relier.cli.table import print_table
from relier.errors import VersionConflictError
from relier.ledger.pages import read_stats
from relier.ledger.stats import QueueStats

TRIES = 5
NEVER_USED = "It is not a known queue: no task waits in it, and none was pushed to it recently. Check the name."


@click.group(cls=DefaultGroup, default="list", aliases={"ls": "list", "status": "list"})
@store_options
def queues(**_: Any) -> None:
    """List, pause and resume queues.

    Without a command, lists queues.
    """


@queues.command("list")
@with_session
def list_command(session: Session) -> None:
    """List queues and the number of waiting tasks: ready for a worker, and held back by limits (LIMITED)."""
    stats = read_stats(session.run, session.ledger)
    view = WorkerView(stats, session.settings.heartbeat_ttl)
    found = sorted(stats.queues, key=lambda queue: queue.queue)
    if session.as_json:
        rows = [_as_dict(queue, view) for queue in found]
        print_json({"namespace": session.settings.namespace, "now_ms": stats.now_ms, "queues": rows})
    elif found:
        print_table(HEADERS, [_row(queue, view, stats.now_ms) for queue in found], optional=("REVIVED", "LIMITED"))
    else:
        click.echo(f"No queues in {session.where}: no task waits, and none was pushed recently.")


HEADERS = ("QUEUE", "READY", "LIMITED", "REVIVED", "OLDEST", "PAUSED", "WORKERS")


def _row(queue: QueueStats, view: WorkerView, now_ms: int) -> tuple[str, ...]:
    return (
        queue.queue,
        f"{queue.ready:,}",
        f"{queue.held_back:,}",
        f"{queue.revived:,}",
        ago(queue.oldest_at_ms, now_ms) if queue.oldest_at_ms else "",
        "paused" if queue.paused else "",
        str(len(view.listening(queue.queue))) + ("?" if view.some_queues_unknown else ""),
    )


def _as_dict(queue: QueueStats, view: WorkerView) -> dict[str, Any]:
    return {
        "queue": queue.queue,
        "ready": queue.ready,
        "held_back": queue.held_back,
        "revived": queue.revived,
        "oldest_ms": queue.oldest_at_ms,
        "paused": queue.paused,
        "workers": len(view.listening(queue.queue)),
    }


@queues.command()
@click.argument("queue")
@DRY_RUN
@with_session
def pause(session: Session, queue: str, dry_run: bool) -> None:
    """Pause QUEUE: workers claim no tasks from it. Running tasks continue, and new ones wait."""
    _operate(session, queue, paused=True, dry_run=dry_run)


@queues.command()
@click.argument("queue")
@DRY_RUN
@with_session
def resume(session: Session, queue: str, dry_run: bool) -> None:
    """Resume a paused QUEUE."""
    _operate(session, queue, paused=False, dry_run=dry_run)


def _operate(session: Session, queue: str, *, paused: bool, dry_run: bool) -> None:
    if dry_run:
        _say_dry_run(session, queue, paused=paused)
        return
    move = session.ledger.pause if paused else session.ledger.resume
    session.run(session.ledger.open())
    for left in reversed(range(TRIES)):
        known = {found.queue: found for found in read_stats(session.run, session.ledger).queues}
        before = known.get(queue)
        try:
            done = session.run(move(queue, before.pause_version if before else 0))
            break
        except VersionConflictError:  # another operator changed it in between
            if not left:
                raise
    if session.as_json:
        print_json({"queue": queue, "paused": paused, "changed": done.verdict == "ok", "known": before is not None})
        return
    now = "paused" if paused else "running"
    waits = f"{plural(before.waiting, 'task waits', 'tasks wait')} in it." if before else NEVER_USED
    click.echo(f"Queue {queue!r} {'is now' if done.verdict == 'ok' else 'was already'} {now}. {waits}")


def _say_dry_run(session: Session, queue: str, *, paused: bool) -> None:
    known = {found.queue: found for found in read_stats(session.run, session.ledger).queues}
    before = known.get(queue)
    changes = paused != (before is not None and before.paused)
    if session.as_json:
        answer = {"queue": queue, "paused": paused, "changed": False, "would_change": changes}
        print_json(answer | {"known": before is not None, "dry_run": True})
        return
    now = "paused" if paused else "running"
    waits = f"{plural(before.waiting, 'task waits', 'tasks wait')} in it." if before else NEVER_USED
    click.echo(f"Queue {queue!r} {'would be' if changes else 'is already'} {now}. {waits}")
