"""rl tasks inflight: the tasks that run now, once or as they come and go."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

import click

from relier.cli.output import clock, one_line, print_json, print_json_line, screen_width, span
from relier.cli.session import Session, with_session
from relier.cli.shards.routes import one_shard_with, routed
from relier.cli.table import built_table, print_table
from relier.cli.task_list import TaskFilter, as_dict, in_state, totals
from relier.errors import RelierError
from relier.ledger.pages import read_stats
from relier.ledger.records import Record
from relier.ledger.stats import Stats
from relier.states import State

HEADERS = ("ID", "NAME", "RUNNING", "ATTEMPT", "QUEUE", "WORKER", "PROGRESS")
OPTIONAL = ("ATTEMPT", "QUEUE", "PROGRESS")
Show = Callable[[Stats, Sequence[Record]], None]


@click.command()
@click.option("--queue", default="", metavar="QUEUE", help="Only tasks in this queue.")
@click.option("--name", default="", metavar="NAME", help="Only tasks with this name.")
@click.option("--worker", default="", metavar="ID", help="Only tasks on the workers whose ids begin with this.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Maximum number to list.")
@click.option("--follow", "-f", is_flag=True, help="Keep showing them until stopped with Ctrl-C.")
@click.option(
    "--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds between two reads."
)
@with_session
@routed(one_shard_with("follow"))
def inflight(session: Session, queue: str, name: str, worker: str, limit: int, follow: bool, interval: float) -> None:
    """Show the tasks that run now, the latest start first.

    With --follow, a terminal shows the list as it changes. Elsewhere each task that starts or ends is one line, with
    --json one JSON document; tasks shorter than --interval may be missed.
    """
    read = partial(running, session, TaskFilter([State.RUNNING], queue, name), worker, limit)
    if follow:
        wait = partial(_sleep, interval)
        with suppress(KeyboardInterrupt):
            if screen_width() is None or session.as_json:
                watch(read, EventPrinter(session), wait)
            else:
                _watch_on_screen(session, read, wait)
        return
    stats, records = read()
    if session.as_json:
        rows = [as_dict(record) | {"progress": record.progress or None} for record in records]
        print_json({"namespace": session.settings.namespace, "tasks": rows, "totals": totals(stats)})
    elif records:
        print_table(HEADERS, [_row(record, stats.now_ms) for record in records], optional=OPTIONAL)
    else:
        click.echo(_nothing(session))


def running(session: Session, wanted: TaskFilter, worker: str, limit: int) -> tuple[Stats, list[Record]]:
    """Read the running tasks of the workers whose ids begin with `worker`, and the counters."""
    stats = read_stats(session.run, session.ledger)
    records = (entry.record for entry in in_state(session, stats, State.RUNNING, wanted, limit=limit))
    mine = (record for record in records if record is not None and wanted.matches(record))
    return stats, list(islice((record for record in mine if record.worker_id.startswith(worker)), limit))


def watch(read: Callable[[], tuple[Stats, list[Record]]], show: Show, wait: Callable[[], bool]) -> None:
    """Show the running tasks repeatedly, while `wait` returns True."""
    while True:
        show(*read())
        if not wait():
            return


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return True


class EventPrinter:
    """Prints one line for each task that has started or ended since the last read."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[tuple[str, str], Record] = {}

    def __call__(self, stats: Stats, records: Sequence[Record]) -> None:
        now = {(record.id, record.fence): record for record in records}
        for key, record in reversed(now.items()):  # the list has the latest first
            if key not in self._known:
                self._print("started", record, stats.now_ms)
        for key, record in self._known.items():
            if key not in now:
                self._print(self._state_of(record.id), record, stats.now_ms)
        self._known = now

    def _state_of(self, task_id: str) -> str:
        try:
            return self._session.run(self._session.ledger.get(task_id)).record.state.value
        except RelierError:  # its record has expired, or cannot be read
            return "ended"

    def _print(self, event: str, record: Record, now_ms: int) -> None:
        if self._session.as_json:
            print_json_line({"event": event, "at_ms": now_ms, "task": as_dict(record)})
        else:
            what = f"{one_line(record.name)} on {record.worker_id}, attempt {record.attempt}"
            click.echo(f"{clock(now_ms, now_ms)}  {event:9}  {record.id}  {what}")


def _watch_on_screen(
    session: Session, read: Callable[[], tuple[Stats, list[Record]]], wait: Callable[[], bool]
) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:

        def show(stats: Stats, records: Sequence[Record]) -> None:
            rows = [_row(record, stats.now_ms) for record in records]
            width, height = live.console.size
            table = built_table(HEADERS, rows[: max(1, height - 2)], optional=OPTIONAL, width=width)
            live.update(table if rows else Text(_nothing(session)), refresh=True)

        watch(read, show, wait)


def _nothing(session: Session) -> str:
    return f"No task is running in {session.where}."


def _row(record: Record, now_ms: int) -> tuple[str, ...]:
    lasts = span(max(0, now_ms - record.moved_ms))
    doing = "cancelling" if "c" in record.flags else record.progress
    return record.id, record.name, lasts, str(record.attempt), record.queue, record.worker_id, doing
