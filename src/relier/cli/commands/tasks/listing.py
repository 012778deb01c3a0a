"""rl tasks list: tasks by state, newest first."""

from __future__ import annotations

import click

from relier.cli.find.task_names import did_you_mean
from relier.cli.namespace_reads import IndexEntry
from relier.cli.output import ago, print_json
from relier.cli.session import Session, with_session
from relier.cli.shards.routes import one_shard_with, routed
from relier.cli.table import print_table, short_in_terminal
from relier.cli.task_list import ORDER, TaskFilter, entry_dict, list_options, list_tasks, print_list_footer, totals
from relier.ledger.records import Record
from relier.states import State

HEADERS = ("ID", "NAME", "STATE", "WHEN", "ATTEMPT", "QUEUE", "DETAIL")


@click.command("list", short_help="List tasks by state, the newest first.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in State]),
    help="Only tasks in this state. Repeatable.",
)
@list_options
@with_session
@routed(one_shard_with("cursor"))
def list_command(
    session: Session, states: tuple[str, ...], queue: str, name: str, reason: str, limit: int, cursor: str | None
) -> None:
    """List tasks by state: running, queued, scheduled, then dead, cancelled and done ones.

    Within a state the newest come first; scheduled tasks are in the order in which they are due. WHEN is when a
    scheduled task is due, and when any other task entered its state.
    """
    wanted = TaskFilter([state for state in ORDER if state.value in states] or ORDER, queue, name, reason)
    listing = list_tasks(session, wanted, limit, cursor)
    stats = session.run(session.ledger.stats())
    if session.as_json:
        print_json(
            {
                "namespace": session.settings.namespace,
                "tasks": [entry_dict(entry, record) for entry, record in listing.pairs],
                "corrupt": listing.corrupt,
                "cursor": listing.cursor,
                "totals": totals(stats),
            }
        )
        return
    if listing.entries:
        rows = [_row(entry, record, stats.now_ms) for entry, record in listing.pairs]
        print_table(HEADERS, rows, optional=("ATTEMPT", "QUEUE"))
    else:
        which = f"{' or '.join(states)} " if states else ""
        click.echo(f"No {which}tasks{wanted} in {session.where}.{did_you_mean(session, wanted)}")
    print_list_footer(session, listing)


def _row(entry: IndexEntry, record: Record, now_ms: int) -> tuple[str, ...]:
    scheduled = record.state is State.SCHEDULED
    at_ms = int(entry.place.score) if scheduled else record.moved_ms or record.spec.at_us // 1000
    cells = (record.id, record.name, record.state.value, ago(at_ms, now_ms), str(record.attempt), record.queue)
    return *cells, _detail(record)


def _detail(record: Record) -> str:
    """Return the details of a task: where a task runs, or why it ended."""
    match record.state:
        case State.RUNNING:
            doing = "cancelling; " if "c" in record.flags else f"{record.progress}; " if record.progress else ""
            return f"{doing}on {short_in_terminal(record.worker_id)}"
        case State.SCHEDULED if record.attempt:
            return "waits for its retry"
    return "" if record.reason == record.state.value else record.reason
