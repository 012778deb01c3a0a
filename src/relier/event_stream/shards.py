"""Follow the events of several shards at once, each with its own follower. An unreachable shard holds up no other.

A cursor has the place in each shard: `0:tasks=…;1:tasks=…`. Events of one shard stay in their order; those of different
shards come as they arrive.
"""

from __future__ import annotations

import asyncio
import queue
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from relier import background
from relier.errors import InvalidSubmissionError, RelierError, StoreUnavailableError
from relier.event_stream.cursor import NOW, START
from relier.event_stream.follower import EventFollower
from relier.ledger.events.records import Event, Missed
from relier.store.sync_wire import run_sync

PLACE = re.compile(r"(\d+):(.+)")
LOOK_S = 1.0
Found = list[Event | Missed]


def split_cursor(since: str, shards: int) -> list[str]:
    """Return where to begin in each shard: 'now', 'start', or the cursor of a follower."""
    if since in {NOW, START}:
        return [since] * shards
    found = {int(match[1]): match[2] for word in since.split(";") if (match := PLACE.fullmatch(word))}
    if sorted(found) != list(range(shards)):
        raise InvalidSubmissionError(
            f"cannot read the cursor {since!r:.80} with RELIER_SHARDS={shards}: it comes from a reader of another "
            f"number of shards; begin with 'now' or 'start'"
        )
    return [found[shard] for shard in range(shards)]


class ShardedFollower:
    """Hold the followers of all shards, and the reader's place in each."""

    def __init__(self, followers: Sequence[EventFollower], since: Sequence[str]) -> None:
        self._followers = followers
        self._places = list(since)

    async def follow(self) -> AsyncIterator[Event | Missed]:
        """Yield events on an event loop."""
        start = partial(background.start, asyncio.get_running_loop())
        reading = {start(self._more(shard)): shard for shard in range(len(self._followers))}
        try:
            while True:
                done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    shard = reading.pop(task)
                    for event in task.result():
                        yield self.placed(shard, event)
                    reading[start(self._more(shard))] = shard
        finally:
            for task in reading:
                task.cancel()

    async def _more(self, shard: int) -> Found:
        """Return the next events of one shard. The very first read waits for an unreachable shard."""
        while True:
            try:
                return await self._followers[shard].more()
            except StoreUnavailableError:
                await asyncio.sleep(LOOK_S)

    def follow_sync(self) -> Iterator[Event | Missed]:
        """Yield events in a thread, which blocks while there are none. Each shard is read by a thread of its own."""
        arrived: queue.Queue[tuple[int, Found | RelierError]] = queue.Queue(maxsize=len(self._followers))
        ending = threading.Event()
        for shard, follower in enumerate(self._followers):
            reader = lambda shard=shard, follower=follower: _read_until(ending, shard, follower, arrived.put)  # noqa: E731
            threading.Thread(target=reader, name=f"relier-events-{shard}", daemon=True).start()
        try:
            while True:
                shard, found = arrived.get()
                if isinstance(found, RelierError):
                    raise found
                for event in found:
                    yield self.placed(shard, event)
        finally:
            ending.set()
            while not arrived.empty():  # let readers that wait for room see that this has ended
                arrived.get_nowait()

    def placed(self, shard: int, event: Event | Missed) -> Event | Missed:
        """Return the event with the reader's place in all shards."""
        self._places[shard] = event.cursor
        return replace(event, cursor=";".join(f"{number}:{place}" for number, place in enumerate(self._places)))


def _read_until(
    ending: threading.Event,
    shard: int,
    follower: EventFollower,
    put: Callable[[tuple[int, Found | RelierError]], None],
) -> None:
    while not ending.is_set():
        try:
            found: Found | RelierError = run_sync(follower.more())
        except StoreUnavailableError:
            ending.wait(LOOK_S)
            continue
        except RelierError as error:
            found = error
        if found:
            put((shard, found))
        if isinstance(found, RelierError):
            return
