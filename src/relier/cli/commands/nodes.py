"""rl nodes: list the processes of every role, and give them orders from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
from msgspec.structs import replace

from relier.cli.command_groups import DefaultGroup, store_options
from relier.cli.node_view import NodeStatus, node_statuses
from relier.cli.output import ago, plural, print_json
from relier.cli.session import CommandFailure, Exit, Session, not_empty, with_session
from relier.cli.shards.routes import routed, to_nodes
from relier.cli.table import print_table
from relier.cli.task_list import totals
from relier.errors import LedgerError, VersionConflictError
from relier.ledger.nodes import LOG_LEVELS, Orders, Role
from relier.ledger.pages import read_stats

HEADERS = ("NODE", "ROLE", "HEALTH", "TASKS", "RSS", "LAST BEAT", "HOST", "PID", "VERSION", "QUEUES")
OPTIONAL = ("VERSION", "PID", "RSS", "HOST", "QUEUES")
TRIES = 3  # if another operator changes the orders at the same time
IDS = click.argument("ids", nargs=-1, required=True, metavar="ID...", callback=not_empty)


class CannotOrderError(Exception):
    """A node cannot be given an order. The message says why."""


@click.group(cls=DefaultGroup, default="list", aliases={"ls": "list", "status": "list"})
@store_options
def nodes(**_: Any) -> None:
    """List workers, relays, schedulers and other processes; drain, resume and stop them from anywhere.

    Without a command, lists nodes, with the options of `rl nodes list`. A node learns its orders with its next
    heartbeat, within seconds. ID may be the beginning of a node id.
    """


# --- list --------------------------------------------------------------------------------------------------------


@nodes.command("list")
@click.option("--role", type=click.Choice([role.value for role in Role]), help="Only nodes of this role.")
@click.option("--host", default="", metavar="HOST", help="Only nodes on this host.")
@with_session
def list_nodes(session: Session, role: str | None, host: str) -> None:
    """List the nodes of every role, and whether they are alive.

    A node is alive while it sends heartbeats, and lost when its lease has run out. It is silent when its heartbeats
    have stopped, but no other node runs whose sweeps would let the lease run out. A drained node takes nothing new
    until it is resumed. Only workers run tasks.
    """
    stats = read_stats(session.run, session.ledger)
    every = node_statuses(stats, session.settings.heartbeat_ttl)
    found = [node for node in every if role in (None, node.role) and host in ("", node.host)]
    if session.as_json:
        rows = [node.as_dict() for node in found]
        namespace = session.settings.namespace
        print_json({"namespace": namespace, "now_ms": stats.now_ms, "nodes": rows, "totals": totals(stats)})
        return
    if not found:
        such = " such" if every else ""
        click.echo(f"No{such} nodes in {session.where}. Start a worker with `rl worker`.")
        return
    print_table(HEADERS, [_row(node, stats.now_ms) for node in found], optional=OPTIONAL)
    if not any(node.role == Role.WORKER and node.health == "alive" for node in every):
        click.echo("No worker is alive: nobody runs tasks.")


def _row(node: NodeStatus, now_ms: int) -> tuple[str, ...]:
    slots = f"/{node.concurrency}" if node.concurrency is not None else ""
    return (
        node.node_id,
        node.role,
        state_of(node),
        f"{node.owned:,}{slots}" if node.role == Role.WORKER else "",
        "" if node.rss_mb is None else f"{node.rss_mb} MB",
        ago(node.beat_ms, now_ms) if node.beat_ms else "never",
        node.host,
        node.pid,
        node.version,
        "" if node.queues is None else ", ".join(node.queues),
    )


def state_of(node: NodeStatus) -> str:
    """Return the health of a node, and whether it is drained or stops."""
    if node.health != "alive" or not node.draining:
        return node.health
    return "stopping" if node.orders.stopping else "drained" if node.orders.draining else "draining"


# --- orders ------------------------------------------------------------------------------------------------------


@nodes.command()
@IDS
@with_session
@routed(to_nodes)
def drain(session: Session, ids: tuple[str, ...]) -> Exit:
    """Tell nodes to take no new work, finish the work in progress and stay alive.

    Workers claim no more tasks, relays no more rows; schedulers and resurrectors leave sweeps to others. End it with
    `rl nodes resume`. A drained node that is declared lost and comes back under a new id stays drained.
    """
    return order_all(session, ids, lambda orders: replace(orders, draining=True), "ordered to drain")


@nodes.command()
@IDS
@with_session
@routed(to_nodes)
def resume(session: Session, ids: tuple[str, ...]) -> Exit:
    """Tell drained nodes to take work again."""
    return order_all(session, ids, lambda orders: replace(orders, draining=False), "ordered to resume")


@nodes.command()
@IDS
@with_session
@routed(to_nodes)
def stop(session: Session, ids: tuple[str, ...]) -> Exit:
    """Tell nodes to shut down, as SIGTERM does.

    Running tasks get RELIER_GRACEFUL_SHUTDOWN_TIMEOUT to finish, and the rest return to their queues.
    """
    return order_all(session, ids, lambda orders: replace(orders, stopping=True), "told to stop")


@nodes.command("log-level")
@click.argument("level", type=click.Choice([*LOG_LEVELS, "reset"], case_sensitive=False))
@IDS
@with_session
@routed(to_nodes)
def log_level(session: Session, level: str, ids: tuple[str, ...]) -> Exit:
    """Set the level of Relier's own log lines on nodes; `reset` restores the level of their settings."""
    wanted = "" if level == "reset" else level.upper()
    done = f"ordered to log from {wanted} on" if wanted else "ordered to restore its log level"
    return order_all(session, ids, lambda orders: replace(orders, log_level=wanted), done)


def order_all(session: Session, ids: Sequence[str], change: Callable[[Orders], Orders], done: str) -> Exit:
    """Give the same order to several nodes, and report the result for each."""
    found = node_statuses(read_stats(session.run, session.ledger), session.settings.heartbeat_ttl)
    chosen = {node.node_id: node for node in (node_with(found, given) for given in ids)}
    rows = [_order_one(session, node, change) for node in chosen.values()]
    if session.as_json:
        print_json({"namespace": session.settings.namespace, "nodes": rows})
    for row in rows if not session.as_json else ():
        if row["error"]:
            click.echo(f"rl: {row['node']} was not {done}: {row['error']}", err=True)
        else:
            click.echo(f"{row['node']} was {done}; it runs {plural(row['owned'], 'task')}.")
    return Exit.PROBLEM if any(row["error"] for row in rows) else Exit.OK


def _order_one(session: Session, node: NodeStatus, change: Callable[[Orders], Orders]) -> dict[str, Any]:
    row = {"node": node.node_id, "role": node.role, "host": node.host or None, "owned": node.owned, "error": None}
    try:
        orders = give_order(session, node, change)
    except CannotOrderError as error:
        return row | {"error": str(error)}
    return row | {"draining": orders.draining, "stopping": orders.stopping, "log_level": orders.log_level or None}


def give_order(session: Session, node: NodeStatus, change: Callable[[Orders], Orders]) -> Orders:
    """Change the orders of a node, and return them. Raises CannotOrderError if the node cannot take that order."""
    check_order(node, stops=change(Orders()).stopping)
    orders = node.orders
    for _ in range(TRIES):
        try:
            ordered: Orders = session.run(session.ledger.order(node.node_id, change(orders)))
        except VersionConflictError:
            nodes = {one.node_id: one for one in read_stats(session.run, session.ledger).nodes}
            if node.node_id not in nodes:
                break
            orders = nodes[node.node_id].orders
        except LedgerError as error:
            raise CannotOrderError(str(error)) from error
        else:
            return ordered
    raise CannotOrderError("other operators keep changing its orders, or it has just stopped; try again")


def check_order(node: NodeStatus, *, stops: bool) -> None:
    """Raise CannotOrderError if the node cannot take an order."""
    if not node.takes_orders:
        raise CannotOrderError("it runs a release that takes no orders; use signals where it runs")
    if node.health != "alive":
        raise CannotOrderError(f"it is {node.health}; a sweep returns its tasks")
    if node.supervisor and stops:
        raise CannotOrderError(
            f"its supervisor, process {node.supervisor}, would start it again; drain it, or stop all its workers with "
            f"`kill {node.supervisor}` on host {node.host}"
        )


def node_with(found: Sequence[NodeStatus], given: str, kind: str = "node") -> NodeStatus:
    """Return the node whose id begins with `given`."""
    near = [node for node in found if node.node_id.startswith(given)]
    exact = [node for node in near if node.node_id == given]
    if len(exact or near) == 1:
        return (exact or near)[0]
    if not near:
        raise CommandFailure(f"no {kind} id begins with {given!r}; `rl {kind}s` lists the {kind}s", Exit.PROBLEM)
    ids = [node.node_id for node in near]
    raise CommandFailure(f"{len(ids)} {kind}s begin with {given!r}; give more characters of the id:", Exit.PROBLEM, ids)
