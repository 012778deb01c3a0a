"""Read the events of some topics, one after the other, without end.

Written once as coroutines, for event loops and for threads (submit/ledger_access.py). The store wakes the reader
through a blocking XREAD. The reader then reads with events.lua, which also finds out whether the reader's place
still exists. Nothing depends on the wake-up: without one, the reader polls every second.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import Literal, Protocol, TypeVar

from msgspec.structs import replace

from relier.errors import RelierError, StoreUnavailableError
from relier.event_stream.cursor import NOW, START, StreamPlace, cursor_of
from relier.ledger.events.records import Event, EventPage, Missed, Topic
from relier.ledger.ledger import Ledger
from relier.monitoring import event_readers
from relier.settings import Settings
from relier.store.call import Call
from relier.store.sync_wire import run_sync
from relier.store.until_answered import growing_pauses, until_answered

T = TypeVar("T")
RENEW_S = 20.0  # the mark of a reader counts for three times as long
WAIT_S = 1.0


class EventAccess(Protocol):
    """Run calls, wait for entries, and sleep. `LedgerAccess` does all three, awaiting or blocking."""

    def run(self, call: Call[T], /) -> Awaitable[T]: ...
    def wait_for_entries(self, positions: Mapping[str, str], seconds: float, /) -> Awaitable[None]: ...
    def sleep(self, seconds: float, /) -> Awaitable[None]: ...


class EventFollower:
    """Hold one reader's places, and its mark."""

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        access: EventAccess,
        places: Mapping[Topic, StreamPlace],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._always = settings.events == "always"
        self._access = access
        self._places = dict(places)
        self._clock = clock
        self._renewed: float | None = None
        self._began = any(place.position not in {NOW, START} for place in places.values())  # after a cursor
        self._worked = False
        self.unread_us = 0  # for the metrics
        event_readers.readers.add(self)

    async def follow(self) -> AsyncIterator[Event | Missed]:
        """Yield events on an event loop."""
        with self._counted():
            while True:
                for event in await self.more():
                    self._hand_out(event)
                    yield event

    def follow_sync(self) -> Iterator[Event | Missed]:
        """Yield events in a thread, which blocks while there are none."""
        with self._counted():
            while True:
                for event in run_sync(self.more()):
                    self._hand_out(event)
                    yield event

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """A reader that has stopped is not behind."""
        try:
            yield
        finally:
            self.unread_us = 0

    def _hand_out(self, event: Event | Missed) -> None:
        if isinstance(event, Event):
            self.unread_us = event.at_us
        else:
            event_readers.missed[event.topic, event.why] += 1

    async def more(self, wait: float = WAIT_S) -> list[Event | Missed]:
        """Return the next events, or none if nothing happens for `wait` seconds."""
        unwatched = await self.watch()
        found = await self.read()
        if not unwatched and not found:
            self.unread_us = 0
            await self._wait(wait)
            found = await self.read()
        return [*unwatched, *found]

    async def read(self) -> list[Event | Missed]:
        """Return the events available now, at most a page of each topic, without registering as a reader."""
        pages = {topic: await self._ask(self._page(topic, place)) for topic, place in self._places.items()}
        return [*self._missed(pages), *self._merged(pages)]

    def _page(self, topic: Topic, place: StreamPlace) -> Callable[[], Awaitable[EventPage]]:
        return lambda: self._access.run(self._ledger.events(topic, place.position, again=place.part > 0))

    async def watch(self) -> list[Missed]:
        """Renew the reader's mark, if it is time to.

        If the mark had run out, processes that write events for readers only have written none.
        """
        if self._renewed is not None and self._clock() - self._renewed < RENEW_S:
            return []
        was_there = await self._ask(lambda: self._access.run(self._ledger.watch()))
        lapsed = not was_there and self._began and not self._always
        self._renewed, self._began = self._clock(), True
        cursor = cursor_of(self._places)
        return [Missed(topic=topic, why="unwatched", cursor=cursor) for topic in self._places] if lapsed else []

    def _missed(self, pages: Mapping[Topic, EventPage]) -> Iterator[Missed]:
        for topic, page in pages.items():
            if page.missed or self._places[topic].position in {NOW, START}:
                self._places[topic] = StreamPlace(page.position)
            if page.missed:
                why: Literal["replaced", "trimmed"] = "replaced" if page.count is None else "trimmed"
                yield Missed(topic=topic, why=why, count=page.count, cursor=cursor_of(self._places))

    def _merged(self, pages: Mapping[Topic, EventPage]) -> Iterator[Event]:
        """Yield the events of all topics by their time. Those of one topic stay in their order."""
        places = {}
        rows: list[list[Event]] = []
        for topic, page in pages.items():
            rows.append([])
            for entry in page.entries:
                place = self._places[topic]
                read = place.part if entry.id == place.position else 0
                for i, event in enumerate(entry.changes[read:], read + 1):
                    places[topic, event.number] = StreamPlace(entry.id, 0 if i == len(entry.changes) else i)
                    rows[-1].append(event)
        for event in heapq.merge(*rows, key=attrgetter("at_us")):
            self._places[event.topic] = places[event.topic, event.number]
            yield replace(event, cursor=cursor_of(self._places))

    async def _wait(self, seconds: float) -> None:
        positions = {self._ledger.event_stream(topic): place.position for topic, place in self._places.items()}
        await self._ask(lambda: self._access.wait_for_entries(positions, seconds))

    async def _ask(self, send: Callable[[], Awaitable[T]]) -> T:
        """Ask until the store answers. Only the very first call raises if the store is unreachable."""
        answer = await until_answered(send, self._again, growing_pauses(), self._access.sleep)
        self._worked = True
        return answer

    def _again(self, error: RelierError) -> None:
        if not self._worked or not isinstance(error, StoreUnavailableError):
            raise error
