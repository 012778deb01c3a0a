"""Bulks of any size: bounded pieces, bounded memory, and errors with the ids under which the same bulk can be pushed
again."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from relier import (
    Client,
    ConfigurationError,
    InvalidSubmissionError,
    PartialPushError,
    PushIndeterminate,
    RedisConnectionError,
    RelierError,
    Settings,
    rl_task,
    use_client,
)
from relier.ledger import keys
from tests.support.servers import Boot, Server
from tests.support.wire import Proxy

WAYS = pytest.mark.parametrize("way", ["push_many", "apush_many"])
pytestmark = pytest.mark.anyio


@rl_task(name="tests.submit.bulk.note")
async def note(text: str) -> None: ...


@rl_task(name="tests.submit.bulk.strict", idempotency_key="{text}", on_duplicate="raise")
async def strict(text: str) -> None: ...


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    yield from using(settings.replace(admission_limit=0))


def using(settings: Settings) -> Iterator[Client]:
    client = Client(settings)
    use_client(client)
    yield client
    use_client(None)
    client.close()


@pytest.fixture
def fragile(settings: Settings, proxy: Proxy) -> Iterator[Client]:
    """A client that gives up after the first attempt, behind a proxy that loses replies as told."""
    update = {
        "redis_url": proxy.url,
        "redis_retries": 0,
        "redis_read_timeout": 10.0,
        "redis_deadline": 20.0,
        "admission_limit": 0,
    }
    yield from using(settings.replace(**update))


async def push(way: str, task: Any, calls: Any, **more: Any) -> list[Any]:
    return task.push_many(calls, **more) if way == "push_many" else await task.apush_many(calls, **more)


def losing(proxy: Proxy, number: int) -> None:
    """Lose the answer to one submit pipeline, counted from 1, and to no later one."""
    seen = 0

    def disturb(data: bytes) -> str | None:
        nonlocal seen
        seen += b"tests.submit.bulk" in data
        return "lose" if seen == number and b"tests.submit.bulk" in data else None

    proxy.disturb = disturb


def calls_of(n: int) -> list[tuple[str]]:
    return [(f"text {number}",) for number in range(n)]


def submitted(client: Client) -> int:
    return int(client.sync_store.command("HGET", keys.spell(client.ledger.prefix, "counts"), "submitted") or 0)


# --- an answer that was lost ------------------------------------------------------------------------------------------


@WAYS
async def test_a_bulk_whose_only_answer_is_lost_names_all_its_ids(fragile: Client, proxy: Proxy, way: str) -> None:
    note.push("the connection is made, and the script is loaded")
    await note.apush("and of the loop")
    before, calls = submitted(fragile), calls_of(100)
    losing(proxy, 1)
    with pytest.raises(RedisConnectionError) as caught:
        await push(way, note, calls)
    error = caught.value
    assert len(set(error.task_ids)) == 100
    assert submitted(fragile) == before + 100, "it was accepted; only nobody heard of it"
    assert any("task_ids=error.task_ids" in text for text in error.__notes__)
    receipts = await push(way, note, calls, task_ids=error.task_ids)
    assert tuple(receipt.id for receipt in receipts) == error.task_ids
    assert all(receipt.duplicate for receipt in receipts), "each was there before"
    assert submitted(fragile) == before + 100


@WAYS
@pytest.mark.parametrize("task", [note, strict], ids=["plain", "on_duplicate=raise"])
async def test_an_interrupted_bulk_continues_under_its_ids(fragile: Client, proxy: Proxy, way: str, task: Any) -> None:
    task.push("the connection is made, and the script is loaded")
    await task.apush("and of the loop")
    before, calls = submitted(fragile), calls_of(5_000)
    losing(proxy, 3)
    with pytest.raises(PartialPushError, match=r"task_ids=error\.task_ids") as caught:
        await push(way, task, calls)
    outcomes = caught.value.outcomes
    assert len(caught.value.task_ids) == len(outcomes) == 5_000
    told = sum(error is None for error in outcomes.values())
    assert 100 <= told < submitted(fragile) - before < 5_000, "some were accepted, and not all of those are known"
    assert "the task was not sent" in str([*outcomes.values()][-1])
    receipts = await push(way, task, calls, task_ids=caught.value.task_ids)
    assert tuple(receipt.id for receipt in receipts) == caught.value.task_ids
    assert submitted(fragile) == before + 5_000


@WAYS
async def test_a_bulk_that_meets_an_emptied_store_and_an_outage_names_all_its_ids(
    fragile: Client, proxy: Proxy, way: str
) -> None:
    """The first tasks are accepted. Then the namespace is opened again, and the store does not answer."""
    note.push("the namespace is open")
    await note.apush("and of the loop")
    fragile.sync_store.command("FLUSHALL")
    opens = fragile.scripts["open"].sha.encode()
    proxy.disturb = lambda data: "lose" if opens in data else None
    with pytest.raises(PartialPushError) as caught:
        await push(way, note, calls_of(5_000))
    assert len(caught.value.task_ids) == 5_000
    proxy.disturb = lambda _: None
    await push(way, note, calls_of(5_000), task_ids=caught.value.task_ids)
    assert submitted(fragile) == 5_000


@WAYS
async def test_a_bulk_that_was_not_confirmed_names_all_its_ids(boot: Boot, settings: Settings, way: str) -> None:
    server = boot(config={"appendonly": "no"})
    update = {"redis_url": server.url, "redis_replicas": 1, "redis_durability_timeout": 0.05, "admission_limit": 0}
    for client in using(settings.replace(**update)):
        with pytest.raises(PushIndeterminate) as caught:
            await push(way, note.with_options(durability="replicated"), calls_of(100))
        assert len(set(caught.value.task_ids)) == 100
        assert submitted(client) == 100
        await client.aclose()


# --- its ids ----------------------------------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize(
    ("ids", "why"),
    [
        (["a", "b"], "task_ids has 2 ids, but there are more calls"),
        (["a", "b", "c", "d"], "task_ids has 4 ids, but there are fewer calls"),
        (["a", "b", "a"], "contains a duplicate id"),
        ("abc", "task_ids must be a list of ids, not 'abc'"),
        (["a", "b", 3], "task_ids must be a list of ids"),
        (["a", "b", "c d"], "c d"),
    ],
)
async def test_ids_that_do_not_fit_push_nothing(client: Client, way: str, ids: Any, why: str) -> None:
    with pytest.raises(InvalidSubmissionError, match=why):
        await push(way, note, calls_of(3), task_ids=ids)
    assert submitted(client) == 0


@WAYS
async def test_ids_of_your_own_make_each_task_once(client: Client, way: str) -> None:
    first = await push(way, note, calls_of(3), task_ids=["order-1", "order-2", "order-3"])
    again = await push(way, note, calls_of(3), task_ids=(f"order-{n}" for n in (3, 4, 5)))
    assert [receipt.duplicate for receipt in [*first, *again]] == [False, False, False, True, False, False]
    assert submitted(client) == 5


@WAYS
async def test_a_single_task_id_for_a_bulk_is_refused_with_advice(client: Client, way: str) -> None:
    with pytest.raises(ConfigurationError, match=r"task_ids=\[…\]"):
        await push(way, note.with_options(task_id="one"), calls_of(2))


# --- its size ---------------------------------------------------------------------------------------------------------


@WAYS
async def test_a_mistake_in_the_last_call_pushes_nothing(client: Client, way: str) -> None:
    too_large = "x" * (client.settings.max_payload_bytes + 1)
    for last in (("two", "arguments"), {"word": "?"}, (too_large,), (object(),), "no call"):
        with pytest.raises((RelierError, TypeError)):
            await push(way, note, [*calls_of(1_500), last])
    assert submitted(client) == 0


@WAYS
async def test_a_long_bulk_is_sent_piece_by_piece_on_one_connection(boot: Boot, settings: Settings, way: str) -> None:
    """If all pieces were sent at once, the last ones would wait for the first ones until their deadline."""
    server = boot()
    for client in using(settings.replace(redis_url=server.url, admission_limit=0)):
        await push(way, note, calls_of(1))
        before = int(server.info("stats")["total_connections_received"])
        receipts = await push(way, note, calls_of(30_000))
        assert len(receipts) == len({receipt.id for receipt in receipts}) == 30_000
        assert submitted(client) == 30_001
        asked = 2 if way == "apush_many" else 1  # this test's own connections
        assert int(server.info("stats")["total_connections_received"]) - before <= asked
        await client.aclose()


@WAYS
async def test_no_request_of_a_bulk_outgrows_its_bound(fragile: Client, proxy: Proxy, way: str) -> None:
    await push(way, note, (("x" * 5_000,) for _ in range(4_000)))
    largest = max(map(len, proxy.requests))
    assert largest < 6 * 1024 * 1024, "20 MB travel in several requests"


@WAYS
async def test_the_payloads_of_a_bulk_are_not_all_in_memory(client: Client, way: str) -> None:
    text = "x" * 10_000
    await push(way, note, [(text,)])
    tracemalloc.start()
    try:
        receipts = await push(way, note, [(text,)] * 8_000)
        left, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(receipts) == 8_000
    assert peak - left < 30_000_000, "80 MB of payload went through"


def test_an_iterator_of_calls_that_raises_pushes_nothing(client: Client) -> None:
    """All calls are read and checked first. So if the iterator fails, nothing is pushed."""

    def failing() -> Iterator[tuple[str]]:
        yield from calls_of(500)
        raise OSError("the file of calls cannot be read")

    with pytest.raises(OSError, match="cannot be read"):
        note.push_many(failing())
    assert submitted(client) == 0
    assert note.push_many([]) == []
