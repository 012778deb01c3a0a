"""rl workers: who works, and who stopped giving signs of life."""

from __future__ import annotations

import click

from relier.cli.output import ago, many, print_json, print_table, span
from relier.cli.session import Session, with_session
from relier.cli.worker_view import Staff, Worker
from relier.ledger.pages import read_stats

HEADERS = ("BOOT", "HEALTH", "HOST", "PID", "QUEUES", "TASKS", "LEASE LEFT", "LAST BEAT", "UP")


@click.command()
@with_session
def workers(session: Session) -> None:
    """Who works, and who stopped giving signs of life.

    alive: it beats. lost: its lease ran out, and the next sweep returns its tasks. silent: it has not beaten for long,
    but nobody is left to move the ledger's clock on and to declare it lost.
    """
    stats = read_stats(session.run, session.ledger)
    staff = Staff(stats, session.settings.heartbeat_ttl)
    if session.as_json:
        rows = [worker.as_dict() for worker in staff.workers]
        print_json({"namespace": session.settings.namespace, "now_ms": stats.now_ms, "workers": rows})
        return
    if not staff.workers:
        click.echo(f"No workers in {session.where}. Start one with `rl worker`.")
        return
    print_table(HEADERS, [_row(worker, stats.now_ms) for worker in staff.workers], ids=("BOOT",))
    gone = [worker for worker in staff.workers if worker.health != "alive"]
    held = sum(worker.owned for worker in gone)
    if gone:
        returns = "a sweep returns them" if staff.alive else "nobody is left to return them: start a worker"
        click.echo(f"{many(len(gone), 'worker')} without a sign of life, {many(held, 'task')} in hand; {returns}.")


def _row(worker: Worker, now_ms: int) -> tuple[str, ...]:
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
