"""rl queues: what waits in each queue; pause and resume."""

from __future__ import annotations

from typing import Any

import click

from relier.cli.output import ago, many, print_json, print_table
from relier.cli.session import Session, with_session
from relier.cli.worker_view import Staff
from relier.errors import VersionConflictError
from relier.ledger.pages import read_stats
from relier.ledger.stats import QueueStats

TRIES = 5
NEVER_USED = "No task waits in it, and none was pushed to it lately: is the name right?"


@click.group(invoke_without_command=True)
@with_session
def queues(session: Session) -> None:
    """What waits in each queue. `rl queues` alone lists them; the commands below pause and resume one."""
    if click.get_current_context().invoked_subcommand:
        return
    stats = read_stats(session.run, session.ledger)
    staff = Staff(stats, session.settings.heartbeat_ttl)
    found = sorted(stats.queues, key=lambda queue: queue.queue)
    if session.as_json:
        rows = [_as_dict(queue, staff) for queue in found]
        print_json({"namespace": session.settings.namespace, "now_ms": stats.now_ms, "queues": rows})
    elif found:
        print_table(HEADERS, [_row(queue, staff, stats.now_ms) for queue in found])
    else:
        click.echo(f"No queues in {session.where}: no task waits, and none was pushed lately.")


HEADERS = ("QUEUE", "READY", "REVIVED", "OLDEST", "PAUSED", "WORKERS")


def _row(queue: QueueStats, staff: Staff, now_ms: int) -> tuple[str, ...]:
    return (
        queue.queue,
        f"{queue.ready:,}",
        f"{queue.revived:,}",
        ago(queue.oldest_at_ms, now_ms) if queue.oldest_at_ms else "",
        "paused" if queue.paused else "",
        str(len(staff.listening(queue.queue))) + ("?" if staff.silent_about_queues else ""),
    )


def _as_dict(queue: QueueStats, staff: Staff) -> dict[str, Any]:
    return {
        "queue": queue.queue,
        "ready": queue.ready,
        "revived": queue.revived,
        "oldest_ms": queue.oldest_at_ms,
        "paused": queue.paused,
        "workers": len(staff.listening(queue.queue)),
    }


@queues.command()
@click.argument("queue")
@with_session
def pause(session: Session, queue: str) -> None:
    """Stop claims from QUEUE. What runs goes on; what is pushed waits."""
    _operate(session, queue, paused=True)


@queues.command()
@click.argument("queue")
@with_session
def resume(session: Session, queue: str) -> None:
    """Let the paused QUEUE go on."""
    _operate(session, queue, paused=False)


def _operate(session: Session, queue: str, *, paused: bool) -> None:
    move = session.ledger.pause if paused else session.ledger.resume
    session.run(session.ledger.open())
    for left in reversed(range(TRIES)):
        known = {found.queue: found for found in read_stats(session.run, session.ledger).queues}
        before = known.get(queue)
        try:
            done = session.run(move(queue, before.pause_version if before else 0))
            break
        except VersionConflictError:  # somebody else pauses and resumes it too
            if not left:
                raise
    if session.as_json:
        print_json({"queue": queue, "paused": paused, "changed": done.verdict == "ok", "known": before is not None})
        return
    now = "paused" if paused else "not paused"
    waits = f"{many(before.ready, 'task waits', 'tasks wait')} in it." if before else NEVER_USED
    click.echo(f"Queue {queue!r} {'is' if done.verdict == 'ok' else 'was already'} {now}. {waits}")
