"""The live feed: events of the namespace as server-sent events, or over a WebSocket.

Each event is `change`, with the cursor as its id, so a browser that reconnects continues where it was. `missed` says
that some could not be delivered. A comment every few seconds keeps proxies from closing the connection, and shows this
process that the browser is gone. At most MOST_FEEDS run at once in a process: each holds a connection to the store.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocket

from relier import background
from relier.cli.commands.events import EventFilter, as_dict
from relier.dashboard.query import Query
from relier.dashboard.security.access import DashboardUser, user_of
from relier.dashboard.security.protection import origin_trouble
from relier.dashboard.session import DashboardSession
from relier.errors import InvalidSubmissionError, RelierError, StoreError
from relier.event_stream.cursor import places_of, topics_of
from relier.event_stream.follower import EventFollower
from relier.ledger.events.records import Event, Missed

MOST_FEEDS = 200
QUIET_S = 10.0
RETRY_MS = 3_000
REFUSED, BROKEN = 4403, 1011  # codes of closed WebSockets
LONGEST_REASON = 123  # bytes, by RFC 6455
HEADERS = {"X-Accel-Buffering": "no"}  # proxies must not collect events


def wants_feed(request: Request) -> bool:
    """Return whether a request for events asks for the feed rather than for the page."""
    return "text/event-stream" in request.headers.get("accept", "")


async def feed(request: Request, user: DashboardUser) -> Response:  # noqa: ARG001 - viewers may read everything
    """Answer with events from now on, or after the one that a browser has seen last."""
    session: DashboardSession = request.app.state.dashboard.session
    follower, wanted = _follower(session, request)
    return StreamingResponse(_sent(session, follower, wanted), media_type="text/event-stream", headers=HEADERS)


def _follower(session: DashboardSession, request: Request) -> tuple[EventFollower, EventFilter]:
    """Return a reader of the topics and from the cursor of a request, and which of its events are wanted."""
    query = Query(request.query_params)
    topics = topics_of([topic for topic in query.text("topics").split(",") if topic] or None)
    since = request.headers.get("last-event-id", "") or query.text("since") or "now"
    try:
        places_of(since, topics)
    except InvalidSubmissionError:  # a cursor of other topics, or of another store
        since = "now"
    if session.feeds >= MOST_FEEDS:
        raise StoreError(f"{MOST_FEEDS} live pages are open on this dashboard; close some, or start another one")
    client = session.client
    follower = EventFollower(client.ledger, client.settings, client.awaiting, places_of(since, topics))
    return follower, EventFilter(query.text("name"), query.text("queue"), query.text("id"))


async def _found(
    session: DashboardSession, follower: EventFollower, wanted: EventFilter
) -> AsyncGenerator[list[Event | Missed]]:
    """Yield what happens, and nothing from time to time. The first is yielded once the follower has its place."""
    session.feeds += 1
    try:
        found: Sequence[Event | Missed] = [*await follower.watch(), *await follower.read()]
        while True:
            yield [event for event in found if wanted.matches(event)]
            found = await follower.more()
    finally:
        session.feeds -= 1


async def _sent(session: DashboardSession, follower: EventFollower, wanted: EventFilter) -> AsyncIterator[str]:
    """Yield events as server-sent events, beginning with those that occur after the first line was sent."""
    spoke = 0.0
    async with aclosing(_found(session, follower, wanted)) as arriving:
        async for events in arriving:
            if not spoke:
                yield f"retry: {RETRY_MS}\n: following\n\n"
            elif not events and time.monotonic() - spoke < QUIET_S:
                continue
            elif not events:
                yield ": still here\n\n"
            if events:
                yield "".join(map(_message, events))
            spoke = time.monotonic()


def _message(event: Event | Missed) -> str:
    return f"event: {_kind(event)}\nid: {event.cursor}\ndata: {json.dumps(as_dict(event), ensure_ascii=False)}\n\n"


def _kind(event: Event | Missed) -> str:
    return "change" if isinstance(event, Event) else "missed"


# --- the same as a WebSocket -------------------------------------------------------------------------------------


async def socket(connection: WebSocket) -> None:
    """Send events as JSON texts: {"event": "following"} first, then "change" and "missed", with "id" and "data".

    Browsers let pages of any site open WebSockets, with the cookies of this one. So the origin must be the same, as for
    a change. A refused connection gets the status 403.
    """
    dashboard = connection.app.state.dashboard
    request = Request({**connection.scope, "type": "http", "method": "GET"})
    user = await user_of(dashboard.auth, request)
    try:
        if user is None or origin_trouble(request):
            await connection.close(REFUSED)
            return
        follower, wanted = _follower(dashboard.session, request)
    except RelierError as error:
        await connection.accept()
        await connection.close(BROKEN, _reason(error))
        return
    await connection.accept()
    loop = asyncio.get_running_loop()
    sending = background.start(loop, _send_all(connection, _found(dashboard.session, follower, wanted)))
    leaving = background.start(loop, _wait_for_end(connection))
    try:
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        failed = sending.exception() if sending.done() else None
        if isinstance(failed, RelierError):
            await connection.close(BROKEN, _reason(failed))
    finally:
        for one in (sending, leaving):
            one.cancel()
        await asyncio.wait({sending, leaving})


def _reason(error: RelierError) -> str:
    return str(error).encode()[:LONGEST_REASON].decode(errors="ignore")


async def _send_all(connection: WebSocket, arriving: AsyncGenerator[list[Event | Missed]]) -> None:
    began = False
    async with aclosing(arriving):
        async for events in arriving:
            if not began:
                began = True
                await connection.send_text('{"event": "following"}')
            for event in events:
                message = {"event": _kind(event), "id": event.cursor, "data": as_dict(event)}
                await connection.send_text(json.dumps(message, ensure_ascii=False))


async def _wait_for_end(connection: WebSocket) -> None:
    """Wait until the client has disconnected. Ignore all messages from the client."""
    while (await connection.receive())["type"] != "websocket.disconnect":
        pass
