"""rl workers: list workers and whether they are alive."""

from __future__ import annotations

import click

from relier.cli.output import ago, plural, print_json, print_table, span
from relier.cli.session import Session, with_session
from relier.cli.worker_view import WorkerStatus, WorkerView
from relier.ledger.pages import read_stats

HEADERS = ("WORKER ID", "HEALTH", "HOST", "PID", "QUEUES", "TASKS", "LEASE LEFT", "LAST BEAT", "UP")


@click.command()
@with_session
def workers(session: Session) -> None:
    """List workers and whether they are alive.

    A worker is alive while it sends heartbeats. It is lost when its lease has run out; the next sweep returns its tasks
    to their queues. It is silent when heartbeats have stopped but no other worker runs that could declare it lost.
    """
    stats = read_stats(session.run, session.ledger)
    view = WorkerView(stats, session.settings.heartbeat_ttl)
    if session.as_json:
        rows = [worker.as_dict() for worker in view.all]
        print_json({"namespace": session.settings.namespace, "now_ms": stats.now_ms, "workers": rows})
        return
    if not view.all:
        click.echo(f"No workers in {session.where}. Start one with `rl worker`.")
        return
    print_table(HEADERS, [_row(worker, stats.now_ms) for worker in view.all], ids=("WORKER ID",))
    gone = [worker for worker in view.all if worker.health != "alive"]
    held = sum(worker.owned for worker in gone)
    if gone:
        returns = "a sweep returns them" if view.alive else "no worker is left to return them; start one"
        click.echo(f"{plural(len(gone), 'worker')} without heartbeats, holding {plural(held, 'task')}; {returns}.")


def _row(worker: WorkerStatus, now_ms: int) -> tuple[str, ...]:
    slots = f"/{worker.concurrency}" if worker.concurrency is not None else ""
    return (
        worker.worker_id,
        worker.health,
        worker.host,
        worker.pid,
        "?" if worker.queues is None else ", ".join(worker.queues),
        f"{worker.owned:,}{slots}",
        span(worker.lease_left_ms) if worker.health == "alive" else "none",
        ago(worker.beat_ms, now_ms) if worker.beat_ms else "never",
        span(now_ms - worker.registered_ms) if worker.registered_ms else "",
    )
