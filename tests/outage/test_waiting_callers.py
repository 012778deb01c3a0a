"""A caller that waits for a result keeps waiting through an outage, up to its timeout, and then says what it knows."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

from relier import (
    Client,
    ConfigurationError,
    ResultTimeoutError,
    Settings,
    SyncTaskReceipt,
    TaskReceipt,
    rl_task,
    use_client,
)
from relier.engines.worker import Worker, WorkerOptions
from relier.settings import DEFAULTS
from tests.support.refusing import Refusing
from tests.support.servers import Boot, Server

pytestmark = pytest.mark.anyio


@rl_task(name="tests.outage.answer")
async def answer() -> int:
    return 42


Wait = Callable[[Client, str, float | None], Coroutine[Any, Any, Any]]


@pytest.fixture(params=["async", "sync"])
def wait(request: pytest.FixtureRequest) -> Wait:
    """Wait for a result by id, awaiting or blocking."""

    async def awaited(client: Client, task_id: str, timeout: float | None) -> Any:  # noqa: ASYNC109
        return await TaskReceipt(task_id, client=client).result(timeout)

    async def blocking(client: Client, task_id: str, timeout: float | None) -> Any:  # noqa: ASYNC109
        return await asyncio.to_thread(SyncTaskReceipt(task_id, client=client).result, timeout)

    return awaited if request.param == "async" else blocking


class Noticed(logging.Handler):
    """An event that is set once a waiting caller has logged that the store is unreachable."""

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "store unreachable, still waiting for a result" in record.getMessage():
            self.event.set()


@pytest.fixture
def noticed() -> Iterator[threading.Event]:
    handler, logger = Noticed(), logging.getLogger("relier.submit")
    logger.addHandler(handler)
    yield handler.event
    logger.removeHandler(handler)


@pytest.fixture
def own_server(boot: Boot) -> Server:
    started: Server = boot()
    return started


@pytest.fixture
async def client(own_server: Server, namespace: str) -> AsyncIterator[Client]:
    """A client on its own server, with a breaker that opens soon."""
    settings = Settings(
        redis_url=own_server.tcp_url,
        namespace=namespace,
        redis_breaker_failures=2,
        redis_deadline=0.3,
        admission_limit=0,
    )
    own = Client(settings)
    use_client(own)
    yield own
    use_client(None)
    await own.aclose()


async def pushed(client: Client) -> TaskReceipt[int]:
    """Push with ordinary deadlines: those of the client under test are too short for a busy machine."""
    patient = Client(client.settings.replace(redis_deadline=DEFAULTS["redis_deadline"]))
    use_client(patient)
    receipt = await answer.apush()
    use_client(client)
    await patient.aclose()
    client.namespace.opened = True
    return receipt


async def finish(client: Client, waits: asyncio.Task[Any]) -> Any:
    worker = Worker(client, WorkerOptions())
    working = asyncio.create_task(worker.run())
    try:
        return await waits
    finally:
        worker.drain()
        await working


@pytest.mark.parametrize("seconds", [60.0, None])
async def test_an_outage_does_not_end_a_wait(
    own_server: Server, client: Client, wait: Wait, noticed: threading.Event, seconds: float | None
) -> None:
    receipt = await pushed(client)
    own_server.stop()  # a server that is killed while its disk is busy loses what it acknowledged
    waits = asyncio.create_task(wait(client, receipt.id, seconds))
    assert await asyncio.to_thread(noticed.wait, 20)
    own_server.start()
    assert await finish(client, waits) == 42


async def test_a_store_that_replies_not_now_does_not_end_a_wait(
    refusing: Refusing, through: Settings, wait: Wait, noticed: threading.Event
) -> None:
    client = Client(through)
    use_client(client)
    receipt = await pushed(client)
    refusing.begin("NOREPLICAS")
    waits = asyncio.create_task(wait(client, receipt.id, 60))
    assert await asyncio.to_thread(noticed.wait, 20)
    refusing.end()
    assert await finish(client, waits) == 42
    use_client(None)
    await client.aclose()


async def test_a_wait_that_times_out_in_an_outage_explains_why(own_server: Server, client: Client, wait: Wait) -> None:
    receipt = await pushed(client)
    own_server.freeze()
    began = time.monotonic()
    with pytest.raises(
        ResultTimeoutError, match=r"outcome of task .* is not known .* the store is unreachable .*try again"
    ):
        await wait(client, receipt.id, 0.6)
    assert time.monotonic() - began < 5
    own_server.thaw()


async def test_a_store_that_refuses_this_client_from_the_start_raises_at_once(boot: Boot, wait: Wait) -> None:
    server = boot(config={"requirepass": "hunter2"})
    client = Client(Settings(redis_url=server.tcp_url))
    with pytest.raises(ConfigurationError, match="NOAUTH"):
        await wait(client, "some-id", 60)
    await client.aclose()


async def test_a_caller_that_never_reached_the_store_waits_no_longer_than_its_timeout(
    own_server: Server, namespace: str, wait: Wait
) -> None:
    """The namespace has to be opened first, and the timeout includes that."""
    client = Client(
        Settings(redis_url=own_server.tcp_url, namespace=namespace, redis_deadline=30, redis_read_timeout=30)
    )
    own_server.freeze()
    began = time.monotonic()
    with pytest.raises(ResultTimeoutError, match="the store is unreachable"):
        await wait(client, "01", 0.6)
    assert time.monotonic() - began < 15
    own_server.thaw()
    await client.aclose()


async def test_a_caller_accepted_before_waits_for_a_store_that_refuses_it_now(
    own_server: Server, client: Client, wait: Wait, noticed: threading.Event
) -> None:
    """Somebody changes an ACL between the push and the wait."""
    receipt = await pushed(client)
    await wait_once(wait, client, receipt.id)
    own_server.command("ACL", "SETUSER", "default", "-evalsha", "-eval")
    waits = asyncio.create_task(wait(client, receipt.id, 60))
    assert await asyncio.to_thread(noticed.wait, 20)
    own_server.command("ACL", "SETUSER", "default", "+@all")
    assert await finish(client, waits) == 42


async def wait_once(wait: Wait, client: Client, task_id: str) -> None:
    with pytest.raises(ResultTimeoutError, match="is still queued"):
        await wait(client, task_id, 1.0)
