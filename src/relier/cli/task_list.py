"""List tasks across the indexes of the ledger, page by page."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click

from relier.cli.namespace_reads import IndexEntry, IndexReader, NamespaceReads, merge_newest_first
from relier.cli.session import Session
from relier.failure import read_failure
from relier.ledger.defaults import LIST_PAGE
from relier.ledger.pages import read_lanes, read_stats
from relier.ledger.records import HistoryEntry, Record
from relier.ledger.stats import Stats
from relier.states import State

ORDER = (State.RUNNING, State.QUEUED, State.SCHEDULED, State.DEAD, State.CANCELLED, State.DONE)
ENDED_BY_DEATH = ("max_resurrections_exceeded", "workers_kept_dying")
SHORT_NAMES = "A short name, such as `send`, also matches `shop.mail.send`."


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of tasks. `cursor` is None on the last page; `corrupt` lists ids whose record cannot be read."""

    entries: list[IndexEntry] = field(default_factory=list)
    corrupt: list[str] = field(default_factory=list)
    cursor: str | None = None

    @property
    def pairs(self) -> list[tuple[IndexEntry, Record]]:
        return [(entry, entry.record) for entry in self.entries if entry.record is not None]

    @property
    def records(self) -> list[Record]:
        return [record for _, record in self.pairs]


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks to list. An empty field matches every task. `name` may be the part after a name's last dot."""

    states: Sequence[State] = ORDER
    queue: str = ""
    name: str = ""
    reason: str = ""

    @property
    def everything(self) -> bool:
        return not (self.queue or self.name or self.reason)

    def matches(self, record: Record) -> bool:
        return (not self.queue or record.queue == self.queue) and (not self.reason or record.reason == self.reason)

    def __str__(self) -> str:
        named = {"with reason": self.reason, "named": self.name, "in queue": self.queue}
        return "".join(f" {word} {value!r}" for word, value in named.items() if value)


def list_tasks(session: Session, wanted: TaskFilter, limit: int, cursor: str | None = None) -> Listing:
    """Return up to `limit` tasks, state by state. A cursor stays valid while tasks come and go."""
    begin, after = read_cursor(cursor)
    listing = Listing()
    stats = read_stats(session.run, session.ledger)
    for nth, state in enumerate(ORDER):
        if nth < begin or state not in wanted.states:
            continue
        after = after if nth == begin else ""
        for entry in in_state(session, stats, state, wanted, after, limit):
            if entry.record is not None and not wanted.matches(entry.record):
                continue
            if len(listing.entries) == limit:
                return replace(listing, cursor=write_cursor(nth, after))
            if entry.record is None:
                listing.corrupt.append(entry.place.id)
            else:
                listing.entries.append(entry)
            after = entry.cursor
    return listing


def all_tasks(session: Session, wanted: TaskFilter) -> Iterator[Record]:
    """Yield every task that matches."""
    stats = read_stats(session.run, session.ledger)
    for state in wanted.states:
        for entry in in_state(session, stats, state, wanted):
            if entry.record is not None and wanted.matches(entry.record):
                yield entry.record


def in_state(
    session: Session, stats: Stats, state: State, wanted: TaskFilter, after: str = "", limit: int = LIST_PAGE
) -> Iterator[IndexEntry]:
    """Yield the tasks in one state, newest first; scheduled ones by when they are due, the next one first."""
    most = min(limit + 1, LIST_PAGE) if wanted.everything else LIST_PAGE

    def entries(index: str, of: str = "", *, newest_first: bool = True) -> Iterator[IndexEntry]:
        return _entries(session, index, of, wanted.name, after, most, newest_first)

    match state:
        case State.SCHEDULED:
            return entries("due", newest_first=False)
        case State.QUEUED:
            queues = [queue for queue in stats.queues if wanted.queue in ("", queue.queue)]
            readers = [IndexReader(entries("ready", queue.queue)) for queue in queues]
            held_back = any(queue.held_back for queue in queues)
            lanes = read_lanes(session.run, session.ledger, wanted.queue) if held_back else ()
            highest = {lane.name: float(lane.last_score) for lane in lanes if lane.waiting}
            readers += [IndexReader(entries("lane", lane), score) for lane, score in highest.items()]
        case State.RUNNING:
            readers = [IndexReader(entries("owned", node.node_id)) for node in stats.nodes]
        case _:
            readers = [IndexReader(entries("ended", state.value))]
    return merge_newest_first(readers)


def _entries(
    session: Session, index: str, of: str, name: str, cursor: str, most: int, newest_first: bool
) -> Iterator[IndexEntry]:
    reads = NamespaceReads(session.store, session.ledger)
    while True:
        page = reads.page(index, of, cursor, most, name, newest_first=newest_first)
        yield from page.entries
        if not (cursor := page.cursor):
            return
        most = LIST_PAGE


def write_cursor(nth: int, after: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([nth, after]).encode()).decode().rstrip("=")


def read_cursor(text: str | None) -> tuple[int, str]:
    """Return the position in ORDER, and the place after which to continue there."""
    if text is None:
        return 0, ""
    try:
        nth, after = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if isinstance(nth, int) and isinstance(after, str):
            return nth, after
    except ValueError:
        pass
    raise click.BadParameter(
        f"{text!r:.60} is not a cursor; copy the whole cursor from the end of a list", param_hint="--cursor"
    )


def entry_dict(entry: IndexEntry, record: Record) -> dict[str, Any]:
    """Return a listed task as JSON data."""
    due = int(entry.place.score) if record.state is State.SCHEDULED else None
    return as_dict(record) | {"due_ms": due}


def as_dict(record: Record) -> dict[str, Any]:
    """Return a record as JSON data."""
    spec = record.spec
    return {
        "id": record.id,
        "name": record.name,
        "queue": record.queue,
        "state": record.state.value,
        "priority": spec.priority,
        "attempt": record.attempt,
        "owner": record.worker_id or None,
        "reason": record.reason or None,
        "version": record.version,
        "accepted_ms": spec.at_us // 1000,
        "changed_ms": record.moved_ms or spec.at_us // 1000,
        "expires_ms": spec.expires_ms,
        "durability": spec.durability.value,
        "key": record.more.get("key"),
        "asked_to_cancel": "c" in record.flags,
        **losses(record),
    }


def losses(record: Record) -> dict[str, int]:
    """Return how often a task was retried, lost its process, and was revived after that, since its last replay.

    An attempt that fails by itself resets the count of deaths that prove nothing: those of processes that ran other
    tasks too.
    """
    died = _count(record, "deaths") + _count(record, "scares")
    ended_by_it = record.state is State.DEAD and record.reason in ENDED_BY_DEATH
    return {
        "retries": _count(record, "retries"),
        "deaths": died + (record.state is State.DEAD and record.reason == "lost"),
        "resurrections": died - ended_by_it,
    }


def totals(stats: Stats) -> dict[str, int]:
    """Return how often tasks of the namespace were retried and revived, and how many died, since it was created."""
    counted = {"retries": "retried", "resurrections": "revived", "dead_letters": "dead"}
    return {name: stats.counts.get(count, 0) for name, count in counted.items()}


def history_dict(entry: HistoryEntry) -> dict[str, Any]:
    """Return an attempt that did not commit as JSON data."""
    failure = read_failure(entry.detail)
    return {
        "attempt": entry.attempt,
        "ended_by": entry.move,
        "worker": entry.worker_id,
        "began_ms": entry.since_ms or None,
        "ended_ms": entry.at_ms,
        "type": failure.kind or None,
        "message": failure.message,
        "traceback": failure.traceback or None,
    }


def _count(record: Record, name: str) -> int:
    text = record.more.get(name, "")
    return int(text) if text.isdigit() else 0


def list_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --queue, --name, --reason, --limit and --cursor."""
    for option in (
        click.option("--cursor", metavar="CURSOR", help="Continue a list from this cursor."),
        click.option(
            "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Maximum number to list."
        ),
        click.option("--reason", default="", metavar="REASON", help="Only tasks that ended for this reason."),
        click.option("--name", default="", metavar="NAME", help=f"Only tasks with this name. {SHORT_NAMES}"),
        click.option("--queue", default="", metavar="QUEUE", help="Only tasks in this queue."),
    ):
        function = option(function)
    return function


def print_list_footer(session: Session, listing: Listing) -> None:
    """Print what the list above leaves out: unreadable records and further pages."""
    for task_id in listing.corrupt:
        click.echo(f"! The record of {task_id} cannot be read; see `rl why {task_id}`.")
    if listing.cursor:
        shard = session.settings.shard
        option = "" if shard is None else f"--shard {shard} before its name, and "
        click.echo(f"For more, repeat the command with {option}--cursor {listing.cursor}")
