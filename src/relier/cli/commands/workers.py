"""rl workers: list workers and whether they are alive, and drain them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from msgspec.structs import replace

from relier.cli.command_groups import DefaultGroup, store_options
from relier.cli.commands.nodes import CannotOrderError, check_order, give_order, node_with, state_of
from relier.cli.node_view import NodeStatus, WorkerView
from relier.cli.output import ago, plural, print_json, span
from relier.cli.session import DRY_RUN, Exit, Session, not_empty, with_session
from relier.cli.shards.routes import routed, to_nodes
from relier.cli.table import print_table
from relier.cli.task_list import totals
from relier.cli.task_selection import is_interactive
from relier.ledger.pages import read_stats

HEADERS = ("WORKER", "HEALTH", "TASKS", "LAST BEAT", "UP", "LEASE LEFT", "HOST", "PID", "QUEUES")
OPTIONAL = ("LEASE LEFT", "PID", "HOST", "UP")
HEALTH = ("alive", "silent", "lost")


@click.group(cls=DefaultGroup, default="status", aliases={"list": "status", "ls": "status"})
@store_options
def workers(**_: Any) -> None:
    """List workers and whether they are alive, and drain them.

    Without a command, lists workers, with the options of `rl workers status`.
    """


# --- status ------------------------------------------------------------------------------------------------------


@workers.command()
@click.option("--health", type=click.Choice(HEALTH), help="Only workers with this health.")
@click.option("--queue", default="", metavar="QUEUE", help="Only workers that serve this queue.")
@click.option("--host", default="", metavar="HOST", help="Only workers on this host.")
@with_session
def status(session: Session, health: str | None, queue: str, host: str) -> None:
    """List workers and whether they are alive.

    A worker is alive while it sends heartbeats. It is lost when its lease has run out; the next sweep returns its tasks
    to their queues. It is silent when its heartbeats have stopped, but no other node runs whose sweeps would let the
    lease run out.
    """
    stats = read_stats(session.run, session.ledger)
    view = WorkerView(stats, session.settings.heartbeat_ttl)
    found = [worker for worker in matching(view, queue, host) if health in (None, worker.health)]
    if session.as_json:
        rows = [worker.as_dict() for worker in found]
        print_json(
            {
                "namespace": session.settings.namespace,
                "now_ms": stats.now_ms,
                "workers": rows,
                "totals": totals(stats),
            }
        )
        return
    if not found:
        such = " such" if view.all else ""
        click.echo(f"No{such} workers in {session.where}. Start one with `rl worker`.")
        return
    print_table(HEADERS, [_row(worker, stats.now_ms) for worker in found], optional=OPTIONAL)
    gone = [worker for worker in found if worker.health != "alive"]
    held = sum(worker.owned for worker in gone)
    if gone:
        returns = "a sweep returns them" if view.alive else "no worker is left to return them; start one"
        click.echo(f"{plural(len(gone), 'worker')} without heartbeats, holding {plural(held, 'task')}; {returns}.")


def matching(view: WorkerView, queue: str, host: str) -> list[NodeStatus]:
    """Return the workers that serve a queue and run on a host; an empty text matches every worker."""
    serving = [worker for worker in view.all if not queue or worker.listens_to(queue)]
    return [worker for worker in serving if not host or worker.host == host]


def _row(worker: NodeStatus, now_ms: int) -> tuple[str, ...]:
    slots = f"/{worker.concurrency}" if worker.concurrency is not None else ""
    return (
        worker.node_id,
        state_of(worker),
        f"{worker.owned:,}{slots}",
        ago(worker.beat_ms, now_ms) if worker.beat_ms else "never",
        span(now_ms - worker.registered_ms) if worker.registered_ms else "",
        span(worker.lease_left_ms) if worker.health == "alive" else "none",
        worker.host,
        worker.pid,
        "?" if worker.queues is None else ", ".join(worker.queues),
    )


# --- drain -------------------------------------------------------------------------------------------------------


@workers.command()
@click.argument("ids", nargs=-1, metavar="[ID]...", callback=not_empty)
@click.option(
    "--queue", default="", metavar="QUEUE", callback=not_empty, help="Drain the workers that serve this queue."
)
@click.option("--host", default="", metavar="HOST", callback=not_empty, help="Drain the workers on this host.")
@click.option("--all", "everything", is_flag=True, help="Drain all workers.")
@DRY_RUN
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@with_session
@routed(to_nodes)
def drain(
    session: Session, ids: tuple[str, ...], queue: str, host: str, everything: bool, dry_run: bool, yes: bool
) -> Exit:
    """Tell workers to finish their tasks and stop, as SIGTERM does, on any host.

    They claim no more tasks. Tasks that do not finish within RELIER_GRACEFUL_SHUTDOWN_TIMEOUT return to their queues.
    ID may be the beginning of a worker id. To keep drained workers alive and resume them later, use `rl nodes drain`.
    """
    if bool(ids) == bool(queue or host or everything):
        raise click.UsageError(
            "IDs and filters cannot be combined; give one or the other"
            if ids
            else "no workers selected; give IDs, --queue, --host or --all"
        )
    view = WorkerView(read_stats(session.run, session.ledger), session.settings.heartbeat_ttl)
    chosen = [node_with(view.all, given, "worker") for given in ids] or matching(view, queue, host)
    if not ids and chosen and not yes and not dry_run:
        if not is_interactive():
            raise click.UsageError(f"{plural(len(chosen), 'worker')} selected, but stdin is not a terminal; add --yes")
        click.confirm(f"Drain {plural(len(chosen), 'worker')} of {session.where}?", abort=True, err=True)
    rows = [_drain(session, worker, dry_run=dry_run) for worker in {one.node_id: one for one in chosen}.values()]
    return _report(session, rows, dry_run=dry_run)


def _drain(session: Session, worker: NodeStatus, *, dry_run: bool) -> dict[str, Any]:
    row = {"worker": worker.node_id, "host": worker.host or None, "owned": worker.owned, "error": None}
    try:
        if dry_run:
            check_order(worker, stops=True)
        else:
            give_order(session, worker, lambda orders: replace(orders, stopping=True))
    except CannotOrderError as error:
        return row | {"outcome": "refused", "error": str(error)}
    return row | {"outcome": "would be told to stop" if dry_run else "told to stop"}


def _report(session: Session, rows: Sequence[dict[str, Any]], *, dry_run: bool) -> Exit:
    if session.as_json:
        print_json({"namespace": session.settings.namespace, "dry_run": dry_run, "workers": rows})
    for row in rows if not session.as_json else ():
        if row["error"]:
            click.echo(f"rl: {row['worker']} was not drained: {row['error']}", err=True)
        else:
            click.echo(f"{row['worker']} {'would be' if dry_run else 'was'} told to stop; it runs {_tasks(row)}.")
    if not rows and not session.as_json:
        click.echo(f"No such workers in {session.where}.")
    return Exit.PROBLEM if any(row["error"] for row in rows) else Exit.OK


def _tasks(row: dict[str, Any]) -> str:
    return plural(row["owned"], "task")
