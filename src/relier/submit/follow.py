"""Follow the events of the namespace that tasks are pushed to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from relier.ledger.events.records import Event, Missed
from relier.submit.client import default_client


def events(topics: str | Iterable[str] | None = None, since: str = "now") -> AsyncIterator[Event | Missed]:
    """Yield the changes in the namespace: of tasks, batches, schedules and the cluster.

        async for event in relier.events("tasks"):
            ...

    `since`: 'now', 'start' (all events that are kept), or the `cursor` of an event, to continue after it. A `Missed`
    says that some events could not be delivered: read the state of what you follow, then continue.
    `Client.events_sync` blocks instead.
    """
    return default_client().events(topics, since)
