"""The live feed: events of the namespace as server-sent events.

Each event is `change`, with the cursor as its id, so a browser that reconnects continues where it was. `missed` says
that some could not be delivered. A comment every few seconds keeps proxies from closing the connection, and shows this
process that the browser is gone. At most MOST_FEEDS run at once in a process: each holds a connection to the store.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from relier.cli.commands.events import EventFilter, as_dict
from relier.dashboard.reads.query import Query
from relier.dashboard.security.access import DashboardUser
from relier.dashboard.session import DashboardSession
from relier.errors import InvalidSubmissionError, StoreError
from relier.event_stream.cursor import places_of, topics_of
from relier.event_stream.follower import EventFollower
from relier.ledger.events.records import Event, Missed

MOST_FEEDS = 200
QUIET_S = 10.0
RETRY_MS = 3_000
HEADERS = {"X-Accel-Buffering": "no"}  # proxies must not collect events


def wants_feed(request: Request) -> bool:
    """Return whether a request for events asks for the feed rather than for the page."""
    return "text/event-stream" in request.headers.get("accept", "")


async def feed(request: Request, user: DashboardUser) -> Response:  # noqa: ARG001 - viewers may read everything
    """Answer with events from now on, or after the one that a browser has seen last."""
    session: DashboardSession = request.app.state.dashboard.session
    query = Query(request.query_params)
    topics = topics_of([topic for topic in query.text("topics").split(",") if topic] or None)
    since = request.headers.get("last-event-id", "") or query.text("since") or "now"
    try:
        places_of(since, topics)
    except InvalidSubmissionError:  # a cursor of other topics, or of another store
        since = "now"
    if session.feeds >= MOST_FEEDS:
        raise StoreError(f"{MOST_FEEDS} live pages are open on this dashboard; close some, or start another one")
    wanted = EventFilter(query.text("name"), query.text("queue"), query.text("id"))
    client = session.client
    follower = EventFollower(client.ledger, client.settings, client.awaiting, places_of(since, topics))
    return StreamingResponse(_sent(session, follower, wanted), media_type="text/event-stream", headers=HEADERS)


async def _sent(session: DashboardSession, follower: EventFollower, wanted: EventFilter) -> AsyncIterator[str]:
    """Yield events. The first line is sent once the follower has its place: what happens from then on arrives."""
    session.feeds += 1
    try:
        found: Sequence[Event | Missed] = [*await follower.watch(), *await follower.read()]
        yield f"retry: {RETRY_MS}\n: following\n\n"
        spoke = time.monotonic()
        while True:
            if messages := [_message(event) for event in found if wanted.matches(event)]:
                yield "".join(messages)
                spoke = time.monotonic()
            elif time.monotonic() - spoke >= QUIET_S:
                yield ": still here\n\n"
                spoke = time.monotonic()
            found = await follower.more()
    finally:
        session.feeds -= 1


def _message(event: Event | Missed) -> str:
    kind = "change" if isinstance(event, Event) else "missed"
    return f"event: {kind}\nid: {event.cursor}\ndata: {json.dumps(as_dict(event), ensure_ascii=False)}\n\n"
