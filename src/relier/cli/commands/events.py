"""rl events: show recent changes, and follow new ones."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click
import msgspec

from relier.cli.output import clock, one_line, plural, print_json, print_json_line, screen_width
from relier.cli.session import Session, with_session
from relier.cli.shards.routes import once, routed
from relier.errors import StoreError
from relier.event_stream.cursor import NOW, START, places_of, topics_of
from relier.event_stream.follower import EventFollower
from relier.event_stream.shards import ShardedFollower, split_cursor
from relier.ledger.events.records import TOPICS, Event, Missed, Topic
from relier.store.call import Call
from relier.store.sync_wire import run_sync
from relier.store.until_answered import blocking_sleep

T = TypeVar("T")
SHORT_ID = 18
LEAST_DETAIL = 20


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events a command shows. Empty fields match all."""

    name: str = ""
    queue: str = ""
    id: str = ""

    def matches(self, event: Event | Missed) -> bool:
        if isinstance(event, Missed):
            return True
        queue = event.id if event.kind in {"paused", "resumed"} and event.topic == "cluster" else event.queue
        named = not self.name or fnmatchcase(event.name, self.name)
        return named and self.queue in {"", queue} and event.id.startswith(self.id)


class CommandReader:
    """The store of one command, for a follower."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def run(self, call: Call[T]) -> T:
        return self._session.run(call)

    async def wait_for_entries(self, positions: Mapping[str, str], seconds: float) -> None:
        self._session.store.wait_for_entries(positions, seconds)

    async def sleep(self, seconds: float) -> None:
        await blocking_sleep(seconds)


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Keep showing events until stopped with Ctrl-C.")
@click.option("--topic", "topics", multiple=True, type=click.Choice(TOPICS), help="Only this topic. May be repeated.")
@click.option(
    "--since", default="", metavar="CURSOR", help="Continue after the event with this cursor, or from now or start."
)
@click.option("--name", default="", metavar="PATTERN", help="Only tasks or batches whose name matches, e.g. 'shop.*'.")
@click.option("--queue", default="", metavar="QUEUE", help="Only events of this queue.")
@click.option("--id", "prefix", default="", metavar="PREFIX", help="Only events of ids that begin with this.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="Maximum number of past events."
)
@with_session
@routed(once)
def events(
    session: Session,
    follow: bool,
    topics: tuple[str, ...],
    since: str,
    name: str,
    queue: str,
    prefix: str,
    limit: int,
) -> None:
    """Show the last changes of tasks, batches, schedules and the cluster; with --follow, also future ones.

    By default, events are written only while someone follows them (RELIER_EVENTS=watched). Each event has a cursor
    (--json), with which a later command continues. Events carry no payloads.
    """
    wanted = EventFilter(name, queue, prefix)
    if session.is_sharded:
        _of_shards(session, wanted, since, topics_of(topics or None), limit, follow=follow)
        return
    follower = EventFollower(
        session.ledger, session.settings, CommandReader(session), places_of(since or START, topics_of(topics or None))
    )
    if not follow:
        _show_past(session, list(_last(_past(follower), wanted, limit)))
        return
    with suppress(KeyboardInterrupt):
        if since != NOW:
            run_sync(follower.watch())
            _print(
                session, _last(_past(follower), wanted, limit) if not since else filter(wanted.matches, _past(follower))
            )
        while True:
            _print(session, filter(wanted.matches, run_sync(follower.more())))


def _of_shards(
    session: Session, wanted: EventFilter, since: str, topics: tuple[Topic, ...], limit: int, *, follow: bool
) -> None:
    """Show the events of all shards: the last ones, and with `follow` also future ones."""
    begin = split_cursor(since or START, session.settings.shards)
    followers = [
        EventFollower(shard.ledger, shard.settings, CommandReader(shard), places_of(place, topics))
        for shard, place in zip(session.shards, begin, strict=True)
    ]
    together = ShardedFollower(followers, begin)
    if not follow:
        _show_past(session, list(_last(_past_of_shards(followers, together), wanted, limit)))
        return
    with suppress(KeyboardInterrupt):
        if not since:
            _print(session, _last(_past_of_shards(followers, together, watch=True), wanted, limit))
        for event in filter(wanted.matches, together.follow_sync()):
            _print(session, [event])


def _past_of_shards(
    followers: Sequence[EventFollower], together: ShardedFollower, *, watch: bool = False
) -> Iterator[Event | Missed]:
    """Yield the stored events of all shards by their time. `watch`: leave the mark of a reader first."""
    found: list[tuple[int, Event | Missed]] = []
    for shard, follower in enumerate(followers):
        try:
            if watch:
                run_sync(follower.watch())
            found += [(shard, event) for event in _past(follower)]
        except StoreError as error:
            click.echo(f"rl: shard {shard} was left out: {error}", err=True)
    for shard, event in sorted(found, key=lambda pair: getattr(pair[1], "at_us", 0)):
        yield together.placed(shard, event)


def _past(follower: EventFollower) -> Iterator[Event | Missed]:
    """Yield the stored events, page by page."""
    while page := run_sync(follower.read()):
        yield from page


def _last(found: Iterable[Event | Missed], wanted: EventFilter, limit: int) -> Iterable[Event | Missed]:
    return deque(filter(wanted.matches, found), maxlen=limit)


def _show_past(session: Session, found: list[Event | Missed]) -> None:
    if session.as_json:
        rows = [as_dict(event) for event in found]
        print_json({"namespace": session.settings.namespace, "events": rows})
        return
    _print(session, found)
    if not found:
        hint = "they are written while somebody follows them: `rl events --follow`"
        never = "this process has RELIER_EVENTS=never"
        mode = session.settings.events
        why = {"watched": f"; {hint}", "never": f"; {never}"}.get(mode, "")
        click.echo(f"No events in {session.where}{why}.")


def _print(session: Session, found: Iterable[Event | Missed]) -> None:
    for event in found:
        if session.as_json:
            print_json_line(as_dict(event))
        else:
            click.echo(as_line(event, time.time_ns() // 1_000_000, screen_width()))


def as_dict(event: Event | Missed) -> dict[str, Any]:
    """Return an event for --json."""
    fields: dict[str, Any] = msgspec.to_builtins(event)
    return fields if isinstance(event, Event) else {"missed": True, **fields}


def as_line(event: Event | Missed, now_ms: int, width: int | None) -> str:
    """Return one line for an event, which fits a terminal of that width. In a pipe nothing is cut."""
    if isinstance(event, Missed):
        some = "some events" if event.count is None else plural(event.count, "event")
        return f"          missed     {some} of {event.topic} ({event.why}): look at the state, then read on"
    shown = event.id if width is None or len(event.id) != 32 else event.id[:SHORT_ID]
    line = f"{clock(event.at_us // 1000, now_ms):8}  {event.kind:9}  {one_line(shown)}  {_details(event)}".rstrip()
    if width is None or len(line) <= width:
        return line
    return f"{line[: max(width, LEAST_DETAIL) - 1]}…"


def _details(event: Event) -> str:
    if event.topic != "tasks":
        what = {"batches": "batch", "schedules": "schedule"}.get(event.topic, _member(event))
        words = [what, event.name, event.reason]
    else:
        attempt = f"attempt {event.attempt}" if event.attempt else ""
        where = f"on {event.worker_id}" if event.worker_id else f"in {event.queue}"
        words = [event.name, attempt, where, f"({event.reason})" if event.reason else ""]
    return one_line(" ".join(word for word in words if word))


def _member(event: Event) -> str:
    if event.kind in {"paused", "resumed"}:
        return "queue"
    return "limit" if event.kind.startswith("limit") else "worker"
