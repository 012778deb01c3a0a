"""List tasks across the indexes of the ledger, page by page."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from relier.cli.session import Session
from relier.ledger.pages import read_stats
from relier.ledger.records import Record
from relier.ledger.stats import Stats
from relier.states import State

PAGE = 1000
ORDER = (State.RUNNING, State.QUEUED, State.SCHEDULED, State.DEAD, State.CANCELLED, State.DONE)
FROM_THE_START = " "
Place = tuple[int, str]  # position in ORDER, and the queue or worker id


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of tasks. `cursor` is None on the last page; `corrupt` lists ids whose record cannot be read."""

    records: list[Record]
    corrupt: list[str]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks to list. An empty field matches every task."""

    states: Sequence[State] = ORDER
    queue: str = ""
    name: str = ""
    reason: str = ""

    @property
    def everything(self) -> bool:
        return not (self.queue or self.name or self.reason)

    def matches(self, record: Record) -> bool:
        return (not self.queue or record.queue == self.queue) and (not self.reason or record.reason == self.reason)


def list_tasks(session: Session, wanted: TaskFilter, limit: int, cursor: str | None = None) -> Listing:
    """Return up to `limit` tasks, index by index. A cursor stays valid while tasks come and go."""
    begin, at = read_cursor(cursor)
    listing = Listing([], [], None)
    for place in sorted(places(read_stats(session.run, session.ledger), wanted)):
        if place < begin:
            continue
        room = limit - len(listing.records)
        rest = _fill(session, place, wanted, listing, room, at if place == begin else None)
        if rest is not None:
            return Listing(listing.records, listing.corrupt, write_cursor(place, rest))
    return listing


def all_tasks(session: Session, wanted: TaskFilter) -> Iterator[Record]:
    """Yield every task that matches."""
    cursor = None
    while True:
        page = list_tasks(session, wanted, PAGE, cursor)
        yield from page.records
        if (cursor := page.cursor) is None:
            return


def places(stats: Stats, wanted: TaskFilter) -> Iterator[Place]:
    for state in wanted.states:
        nth = ORDER.index(state)
        if state is State.QUEUED:
            yield from ((nth, queue.queue) for queue in stats.queues if wanted.queue in ("", queue.queue))
        elif state is State.RUNNING:
            yield from ((nth, worker.worker_id) for worker in stats.workers)
        else:
            yield nth, "" if state is State.SCHEDULED else state.value


def _fill(
    session: Session, place: Place, wanted: TaskFilter, listing: Listing, room: int, cursor: str | None
) -> str | None:
    """Add up to `room` tasks of one index to the listing. Return where to continue, or None at its end."""
    if not room:
        return cursor or FROM_THE_START
    index = {State.RUNNING: "owned", State.QUEUED: "ready", State.SCHEDULED: "due"}.get(ORDER[place[0]], "ended")
    most = min(room, PAGE) if wanted.everything else PAGE
    while most:
        page = session.run(session.ledger.list(index, place[1], cursor=cursor, most=most, name=wanted.name))
        found = [record for record in page.records if wanted.matches(record)]
        if len(found) > room:
            most //= 2  # a cursor points at the end of a page, so read a shorter page
            continue
        listing.records.extend(found)
        listing.corrupt.extend(page.corrupt)
        room -= len(found)
        cursor = page.cursor
        if cursor is None:
            return None
        most = min(most, room)
    return cursor


def write_cursor(place: Place, cursor: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([*place, cursor]).encode()).decode().rstrip("=")


def read_cursor(text: str | None) -> tuple[Place, str | None]:
    if text is None:
        return (0, ""), None
    try:
        nth, of, cursor = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if isinstance(nth, int) and isinstance(of, str) and isinstance(cursor, str):
            return (nth, of), cursor if cursor.strip() else None
    except ValueError:
        pass
    raise click.BadParameter(
        f"{text!r:.60} is not a cursor; copy the whole cursor from the end of a list", param_hint="--cursor"
    )


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
    }


def list_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --queue, --name, --limit and --cursor."""
    for option in (
        click.option("--cursor", metavar="CURSOR", help="Continue a list from this cursor."),
        click.option(
            "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Maximum number to list."
        ),
        click.option("--name", default="", metavar="NAME", help="Only tasks with this name."),
        click.option("--queue", default="", metavar="QUEUE", help="Only tasks in this queue."),
    ):
        function = option(function)
    return function


def print_list_footer(listing: Listing) -> None:
    """Print what the list above leaves out: unreadable records and further pages."""
    for task_id in listing.corrupt:
        click.echo(f"! The record of {task_id} cannot be read; see `rl why {task_id}`.")
    if listing.cursor:
        click.echo(f"For more, repeat the command with --cursor {listing.cursor}")
