"""Count round trips to the store: every exchange of a request and its replies on a blocking connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hiredis
import pytest

from relier.store.sync_wire import SyncConnection


class RoundTrips:
    """How many round trips were taken since the last reset."""

    def __init__(self) -> None:
        self.count = 0
        self.sent: list[bytes] = []

    def reset(self) -> None:
        self.count, self.sent = 0, []

    def commands(self) -> list[tuple[bytes, ...]]:
        """Return the commands that were sent."""
        reader = hiredis.Reader()
        for request in self.sent:
            reader.feed(request)
        found = []
        while (command := reader.gets()) is not False:
            found.append(tuple(command))
        return found


@contextmanager
def counted_round_trips() -> Iterator[RoundTrips]:
    """Count the exchanges of all blocking connections of this process."""
    found = RoundTrips()
    exchange = SyncConnection.exchange

    async def counting(self: SyncConnection, request: bytes, replies: int, seconds: float) -> list[Any]:
        found.count += 1
        found.sent.append(request)
        return await exchange(self, request, replies, seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SyncConnection, "exchange", counting)
        yield found


def pages_of(ids: dict[str, str]) -> list[str]:
    """Return paths that open every page, with and without filters."""
    return [
        "/",
        "/queues",
        "/queues?q=0001",
        "/tasks",
        "/tasks?state=queued&queue=queue-00001",
        "/tasks?state=queued&name=task_3",
        "/tasks?state=running",
        "/tasks?state=scheduled",
        "/tasks?state=done",
        "/tasks?state=dead&reason=Error3&since=2020-01-01T00:00Z",
        f"/tasks?id={ids['queued']}",
        f"/tasks?id={ids['queued'][:8]}",
        *(f"/task?id={ids[name]}" for name in ("queued", "dead", "done", "limited")),
        "/dead",
        "/dead?reason=Error3&name=shop.task_3",
        "/schedules",
        "/schedules?q=0001",
        "/schedule?name=nightly-00001",
        "/batches",
        f"/batch?id={ids['batch']}",
        "/nodes",
        "/nodes?q=host-1",
        "/limits",
        "/limits?q=tenant:1",
        "/outbox",
        "/events",
        "/actions",
    ]
