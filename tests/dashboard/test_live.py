"""The live feed: a real server, a real connection, and events of a real store."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import IO, Any

import pytest
import websocket
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from relier.dashboard import app
from relier.dashboard.application import local_app
from relier.settings import Settings
from tests.dashboard.serving import served
from tests.support.cli_desk import Desk


@pytest.fixture
def address(desk: Desk, settings: Settings) -> Iterator[str]:
    with served(local_app(settings)) as url:
        yield url


def open_feed(address: str, query: str = "", **headers: str) -> IO[bytes]:
    given = {"Accept": "text/event-stream", **headers}
    opened: IO[bytes] = urllib.request.urlopen(
        urllib.request.Request(f"{address}/events{query}", headers=given), timeout=30
    )
    first = [opened.readline() for _ in range(3)]
    assert first[0].startswith(b"retry:"), first
    return opened


def next_change(feed: IO[bytes]) -> tuple[str, dict[str, Any]]:
    """Return the id and the data of the next event."""
    fields: dict[bytes, bytes] = {}
    while line := feed.readline():
        name, _, value = line.rstrip(b"\n").partition(b": ")
        if not name and fields.get(b"data"):
            return fields[b"id"].decode(), json.loads(fields[b"data"])
        fields[name] = value
    raise AssertionError("the feed ended")


def test_a_change_arrives_while_the_page_is_open(address: str, desk: Desk) -> None:
    with open_feed(address, "?topics=tasks") as feed:
        desk.run(desk.ledger.watch())  # the feed leaves this mark too, maybe a moment later
        task = desk.push()
        cursor, event = next_change(feed)
        assert (event["id"], event["kind"]) == (task, "queued")
        desk.claim()
        assert next_change(feed)[1]["kind"] == "running"
    with open_feed(address, "?topics=tasks", **{"Last-Event-ID": cursor}) as feed:
        assert next_change(feed)[1]["kind"] == "running", "it continues after the event that was seen last"


def test_events_that_were_followed_are_listed(address: str, desk: Desk) -> None:
    with open_feed(address) as feed:
        desk.run(desk.ledger.watch())
        task = desk.push()
        next_change(feed)
    with urllib.request.urlopen(f"{address}/api/events", timeout=30) as answer:
        assert [event["id"] for event in json.load(answer)["events"]] == [task]


def test_the_feed_needs_a_user_too(settings: Settings) -> None:
    chosen = settings.replace(dashboard_token="operator-token-0123")
    with TestClient(app(settings=chosen), base_url="http://localhost", follow_redirects=False) as web:
        assert web.get("/events", headers={"Accept": "text/event-stream"}).status_code == 303
        assert web.get("/api/events", headers={"Accept": "text/event-stream"}).status_code == 401


def test_an_unknown_topic_is_refused(web: TestClient) -> None:
    answer = web.get("/api/events?topics=none", headers={"Accept": "text/event-stream"})
    assert answer.status_code == 400


# --- the same as a WebSocket -------------------------------------------------------------------------------------


def test_a_websocket_gets_the_same_events(web: TestClient, desk: Desk) -> None:
    with web.websocket_connect("ws://localhost/events?topics=tasks", headers={"Origin": "http://localhost"}) as feed:
        assert feed.receive_json() == {"event": "following"}
        desk.run(desk.ledger.watch())
        task = desk.push()
        message = feed.receive_json()
        assert (message["event"], message["data"]["id"], message["data"]["kind"]) == ("change", task, "queued")
        desk.claim()
    with web.websocket_connect(f"ws://localhost/api/events?topics=tasks&since={message['id']}") as feed:
        assert feed.receive_json() == {"event": "following"}
        assert feed.receive_json()["data"]["kind"] == "running", "it continues after the cursor"


def test_a_websocket_of_another_site_is_refused(web: TestClient) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
        with pytest.raises(WebSocketDisconnect), web.websocket_connect("ws://localhost/events", headers=headers):
            raise AssertionError("it was accepted")


def test_a_websocket_needs_a_user_too(settings: Settings) -> None:
    chosen = settings.replace(dashboard_viewer_token="viewer-token-012345")
    with TestClient(app(settings=chosen), base_url="http://localhost") as web:
        with pytest.raises(WebSocketDisconnect), web.websocket_connect("ws://localhost/events"):
            raise AssertionError("it was accepted")
        bearer = {"Authorization": "Bearer viewer-token-012345"}
        with web.websocket_connect("ws://localhost/events", headers=bearer) as feed:
            assert feed.receive_json() == {"event": "following"}


def test_a_websocket_is_served_by_the_command(address: str, desk: Desk) -> None:
    """uvicorn needs a library for WebSockets, which comes with the extra."""
    feed = websocket.create_connection(f"{address.replace('http', 'ws')}/events", timeout=30)
    try:
        assert json.loads(feed.recv()) == {"event": "following"}
        desk.run(desk.ledger.watch())
        task = desk.push()
        assert json.loads(feed.recv())["data"]["id"] == task
    finally:
        feed.close()


def test_the_reason_of_a_refused_websocket_fits_into_its_frame(web: TestClient) -> None:
    with (
        web.websocket_connect(f"ws://localhost/events?topics={'é' * 200}") as feed,
        pytest.raises(WebSocketDisconnect) as refused,
    ):
        feed.receive_json()
    assert refused.value.reason
    assert len(refused.value.reason.encode()) <= 123
