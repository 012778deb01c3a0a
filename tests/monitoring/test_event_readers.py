"""How far readers of events are behind, as metrics tell it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

import pytest

from relier import Client, Event, Missed, Settings
from relier.event_stream.cursor import places_of
from relier.event_stream.follower import EventFollower
from relier.ledger.records import Submission, new_task_id
from relier.monitoring.event_readers import event_lag, missed
from relier.store.sync_wire import run_sync


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    client = Client(settings.replace(events="always", events_keep=100))
    client.open()
    yield client
    client.close()


def push(client: Client, n: int) -> None:
    for _ in range(n):
        task = Submission(id=new_task_id(), name="tests.readers.note", payload=b"{}")
        client.run(client.ledger.submit([task]))


def test_a_reader_is_behind_by_the_age_of_the_event_that_it_is_at(client: Client) -> None:
    push(client, 3)
    reader = client.events_sync("tasks", since="start")
    assert event_lag() == 0
    for event in islice(reader, 3):
        assert isinstance(event, Event)
        assert event_lag() == pytest.approx(time.time() - event.at_us / 1e6, abs=0.5)
        assert event_lag() > 0
    del reader
    assert event_lag() == 0, "a reader that has stopped is not behind"


def test_a_reader_that_waits_has_read_everything(client: Client) -> None:
    push(client, 1)
    follower = EventFollower(client.ledger, client.settings, client.blocking, places_of("start", ("tasks",)))
    for event in follower.follow_sync():
        assert isinstance(event, Event)
        break
    follower.unread_us = 1
    assert event_lag() > 1e9
    assert run_sync(follower.more(0.01)) == []
    assert event_lag() == 0


def test_gaps_are_counted(client: Client) -> None:
    before = missed["tasks", "trimmed"]
    push(client, 1)
    reader = client.events_sync("tasks", since="start")
    cursor = next(reader)
    assert isinstance(cursor, Event)
    push(client, 300)
    behind = client.events_sync("tasks", since=cursor.cursor)
    assert isinstance(next(behind), Missed)
    assert missed["tasks", "trimmed"] == before + 1
