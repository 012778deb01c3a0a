"""Readers of events get every change, or are told that they missed some; with that, they can restore a correct view."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice

import pytest

import relier
from relier import Client, Event, InvalidSubmissionError, Missed, RedisConnectionError, Settings, use_client
from relier.event_stream.cursor import places_of
from relier.event_stream.follower import EventFollower
from relier.ledger.events.records import TOPICS
from relier.ledger.events.writing import EventWriting
from relier.ledger.ledger import LUA, load_scripts
from relier.ledger.records import Submission, new_task_id
from relier.settings import EventMode
from relier.states import State
from tests.support.servers import Boot, Server

pytestmark = pytest.mark.anyio
SOON = 20.0


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    client = Client(settings.replace(events="always", events_keep=100))
    client.open()
    yield client
    client.close()


def push(client: Client, n: int = 1) -> list[str]:
    tasks = [Submission(id=new_task_id(), name="tests.events.note", payload=b"{}") for _ in range(n)]
    for chunk in client.ledger.chunks(tasks):
        client.run(client.ledger.submit(chunk))
    return [task.id for task in tasks]


async def soon(reader: AsyncIterator[Event | Missed]) -> Event | Missed:
    return await asyncio.wait_for(anext(reader), SOON)


async def events_of(reader: AsyncIterator[Event | Missed], n: int) -> list[Event]:
    found = [await soon(reader) for _ in range(n)]
    assert all(isinstance(event, Event) for event in found), found
    return [event for event in found if isinstance(event, Event)]


def drop(client: Client) -> None:
    """Remove all keys of the namespace, as FLUSHDB would."""
    present = client.sync_store.command("KEYS", f"{client.ledger.prefix}*")
    client.sync_store.command("DEL", *present)


async def test_a_reader_gets_every_change_in_order(client: Client) -> None:
    reader = client.events("tasks", since="start")
    ids = [*push(client), *push(client, 60)]
    found = await events_of(reader, 61)
    assert [event.id for event in found] == ids
    assert [event.number for event in found] == list(range(1, 62))
    await client.aclose()


async def test_a_reader_that_begins_now_gets_later_events(client: Client) -> None:
    push(client)
    reader = client.events(["tasks"])
    waiting = asyncio.ensure_future(anext(reader))
    ids: list[str] = []
    while not waiting.done():
        ids += push(client)
        await asyncio.wait([waiting], timeout=0.01)
    event = waiting.result()
    assert isinstance(event, Event)
    assert event.id in ids
    await client.aclose()


@pytest.mark.parametrize("read", range(1, 8))
async def test_a_cursor_continues_after_any_event(client: Client, read: int) -> None:
    ids = [*push(client, 3), *push(client), *push(client, 3)]
    found = await events_of(client.events(since="start"), read)
    rest = await events_of(client.events(since=found[-1].cursor), 7 - read)
    assert [event.id for event in [*found, *rest]] == ids
    await client.aclose()


def test_threads_read_the_same_events(client: Client) -> None:
    ids = push(client, 3)
    found = list(islice(client.events_sync("tasks", since="start"), 3))
    assert [event.id for event in found if isinstance(event, Event)] == ids


async def test_the_public_function_uses_the_client_of_tasks(client: Client) -> None:
    use_client(client)
    try:
        ids = push(client)
        (event,) = await events_of(relier.events(since="start"), 1)
        assert (event.topic, event.id) == ("tasks", ids[0])
    finally:
        use_client(None)
        await client.aclose()


# --- events only say when to look -----------------------------------------------------------------------------------


def test_a_view_converges_in_one_tick_although_every_event_is_dropped(client: Client) -> None:
    """The scripts delete the stream right after they have written to it, so no reader ever sees an entry."""
    lossy = Client(client.settings)
    text = (LUA / "lib" / "tell.lua").read_text(encoding="utf-8")
    gone = text.replace(
        "    if math.floor(last", "    redis.call('UNLINK', EVENTS .. topic)\n    if math.floor(last", 1
    )
    vars(lossy)["scripts"] = load_scripts(EventWriting("always"), lib__tell=gone)
    follower = EventFollower(client.ledger, client.settings, client.blocking, places_of("now", TOPICS))
    reader = follower.follow_sync()
    push(lossy)  # before the reader begins
    assert follower_is_idle(follower)
    (task,) = push(lossy)
    told = next(reader)
    assert told == Missed(topic="tasks", why="trimmed", count=1, cursor=told.cursor)
    assert (
        client.run(client.ledger.get(task)).record.state is State.QUEUED
    )  # which the reader reads, so that its view is correct
    push(lossy, 5)
    told = next(reader)
    assert isinstance(told, Missed)
    assert told.count == 5
    lossy.close()


def follower_is_idle(follower: EventFollower) -> bool:
    from relier.store.sync_wire import run_sync

    return run_sync(follower.read()) == []


async def test_a_reader_that_fell_behind_the_stream_gets_missed(client: Client) -> None:
    push(client)
    (event,) = await events_of(client.events(since="start"), 1)
    for _ in range(400):
        push(client)
    reader = client.events(since=event.cursor)
    missed = await soon(reader)
    assert isinstance(missed, Missed)
    assert (missed.topic, missed.why) == ("tasks", "trimmed")
    assert missed.count is not None
    rest = await events_of(reader, 400 - missed.count)
    assert rest[0].number == 2 + missed.count
    assert len(rest) >= 100
    assert [event.number for event in rest] == list(range(rest[0].number, 402))
    again = await events_of(client.events(since=missed.cursor), 1)  # its cursor is where it goes on
    assert again[0].number == rest[0].number
    await client.aclose()


async def test_a_reader_of_an_emptied_store_gets_missed(client: Client) -> None:
    push(client, 5)
    reader = client.events("tasks", since="start")
    await events_of(reader, 5)
    drop(client)
    missed = await soon(reader)
    assert missed == Missed(topic="tasks", why="replaced", cursor="tasks=0-0")
    client.open()
    ids = push(client, 2)  # with numbers that the reader has seen
    assert [event.id for event in await events_of(reader, 2)] == ids
    await client.aclose()


async def test_a_reader_of_a_rolled_back_store_gets_missed(client: Client) -> None:
    """A failover to a replica that lacked the last writes: new events reuse the numbers of those that were lost."""
    push(client, 3)
    names = client.sync_store.command("KEYS", f"{client.ledger.prefix}ev*")
    kept = {name: client.sync_store.command("DUMP", name) for name in names}
    lost = push(client, 2)
    found = await events_of(client.events("tasks", since="start"), 5)
    for name, value in kept.items():
        client.sync_store.command("RESTORE", name, 0, value, "REPLACE")
    new = [*push(client), *push(client), *push(client, 2)]
    reader = client.events("tasks", since=found[-1].cursor)
    missed = await soon(reader)
    assert isinstance(missed, Missed)
    assert missed.why == "replaced"
    assert [event.id for event in await events_of(reader, 4)] == new
    assert not set(lost) & set(new)
    await client.aclose()


async def test_an_outage_is_waited_through(boot: Boot, settings: Settings) -> None:
    server: Server = boot(config={"appendonly": "yes", "appendfsync": "always"})
    hasty, patient = (
        Client(settings.replace(redis_url=server.url, events="always", redis_deadline=seconds)) for seconds in (0.5, 30)
    )
    patient.open()
    hasty.namespace.opened = True
    ids = push(patient, 2)
    reader = hasty.events("tasks", since="start")
    found = await events_of(reader, 2)
    waiting = asyncio.ensure_future(anext(reader))
    server.kill()
    with pytest.raises(RedisConnectionError):
        push(hasty)
    server.start()
    ids += push(patient)
    event = await asyncio.wait_for(waiting, SOON)
    assert isinstance(event, Event)
    assert [*(one.id for one in found), event.id] == ids
    await hasty.aclose()
    await patient.aclose()


async def test_the_first_call_reports_an_unreachable_store(settings: Settings) -> None:
    client = Client(settings.replace(redis_url="redis://127.0.0.1:1", redis_deadline=0.3))
    with pytest.raises(RedisConnectionError):
        await anext(client.events())
    await client.aclose()


# --- readers and writers of other modes -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["watched", "always"])
def test_a_reader_whose_mark_ran_out_gets_missed_if_events_depend_on_it(settings: Settings, mode: EventMode) -> None:
    client = Client(settings.replace(events=mode))
    now = [0.0]
    access = client.blocking
    follower = EventFollower(client.ledger, client.settings, access, places_of("now", ("tasks",)), lambda: now[0])
    reader = follower.follow_sync()
    assert follower_is_watched(follower) == []
    (first,) = push(client)
    assert getattr(next(reader), "id", "") == first
    client.sync_store.command("DEL", f"{client.ledger.prefix}evw")  # its time is over
    push(client)
    now[0] += 21
    told = next(reader)
    assert isinstance(told, Missed if mode == "watched" else Event)
    if isinstance(told, Missed):
        assert told.why == "unwatched"
        (second,) = push(client)
        assert getattr(next(reader), "id", "") == second
    client.close()


def follower_is_watched(follower: EventFollower) -> list[Event | Missed]:
    from relier.store.sync_wire import run_sync

    return [*run_sync(follower.watch()), *run_sync(follower.read())]


# --- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topics", ["weather", ["tasks", "weather"], []])
def test_an_unknown_topic_is_refused(client: Client, topics: str | list[str]) -> None:
    with pytest.raises(InvalidSubmissionError, match="topic"):
        client.events(topics)


@pytest.mark.parametrize("since", ["", "yesterday", "tasks", "tasks=1", "tasks=1-2,", "tasks=x-y", "tasks=1-2.x"])
def test_a_cursor_that_cannot_be_read_is_refused(client: Client, since: str) -> None:
    with pytest.raises(InvalidSubmissionError, match="cursor"):
        client.events("tasks", since)


def test_a_cursor_of_other_topics_is_refused(client: Client) -> None:
    with pytest.raises(InvalidSubmissionError, match="no place for the topic 'cluster'"):
        client.events(["tasks", "cluster"], "tasks=1-2")
