"""Pushing from an application: its lifespan, its background tasks, and the answers to clients when a push fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient

from relier import Admit, Client, ConfigurationError, Settings, rl_task, use_client
from relier.fastapi import DurableTasks, add_exception_handlers, get_client, relier_lifespan
from relier.submit import client as clients
from relier.testing import inline, recorded, run_pending, store
from tests.support.crew import Crew
from tests.support.servers import Boot

pytestmark = pytest.mark.anyio


@rl_task(name="web.mail")
async def mail(to: str) -> None: ...


@rl_task(name="web.limited", admission=Admit("one", limit=1, window=30))
async def limited() -> None: ...


@rl_task(name="web.once", idempotency_key="{order}", on_duplicate="raise")
async def once(order: int) -> None: ...


app = FastAPI()
add_exception_handlers(app)


@app.post("/orders/{email}")
async def place(email: str, background: DurableTasks, refuse: bool = False) -> dict[str, bool]:
    background.add_task(mail, email)
    background.add_task(mail.with_options(queue="copies"), "archive")
    if refuse:
        raise HTTPException(402, "no money")
    return {"pushed": bool(background.receipts)}


@app.post("/limited")
async def push_limited(client: Annotated[Client, Depends(get_client)]) -> str:
    assert isinstance(client, Client)
    return (await limited.apush()).id


@app.post("/once/{order}")
def push_once(order: int) -> str:
    return once.push(order).id


@app.post("/wrong")
async def wrong(background: DurableTasks) -> None:
    background.add_task(print, "x")  # type: ignore[arg-type]


@pytest.fixture
async def web() -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://shop") as client:
        yield client


async def test_background_tasks_are_pushed_after_the_endpoint_and_before_the_response(
    crew: Crew, web: httpx2.AsyncClient
) -> None:
    answer = await web.post("/orders/ann@example.org")
    assert answer.json() == {"pushed": False}  # the endpoint had not returned yet
    assert {queue.queue: queue.ready for queue in crew.stats().queues} == {"default": 1, "copies": 1}


async def test_nothing_is_pushed_if_the_endpoint_raises(crew: Crew, web: httpx2.AsyncClient) -> None:
    assert (await web.post("/orders/ann@example.org?refuse=true")).status_code == 402
    assert crew.count("queued") == 0


async def test_only_tasks_can_be_background_tasks(crew: Crew, web: httpx2.AsyncClient) -> None:
    with pytest.raises(ConfigurationError, match="decorate the function with @rl_task"):
        await web.post("/wrong")


async def test_over_a_limit_the_client_gets_retry_after(crew: Crew, web: httpx2.AsyncClient) -> None:
    assert (await web.post("/limited")).status_code == 200
    answer = await web.post("/limited")
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["retry-after"]) <= 30
    assert answer.json()["detail"].startswith("Too many requests")


async def test_a_duplicate_is_a_conflict(crew: Crew, web: httpx2.AsyncClient) -> None:
    first = (await web.post("/once/1")).json()
    answer = await web.post("/once/1")
    assert (answer.status_code, answer.json()["task_id"]) == (409, first)


@pytest.fixture
def quick_settings(boot: Boot) -> Iterator[tuple[Any, Settings]]:
    server = boot()
    yield server, Settings(redis_url=server.url, redis_deadline=0.3, redis_breaker_failures=1000)
    use_client(None)


async def test_while_the_store_is_stopped_a_push_is_unavailable(quick_settings: Any, web: httpx2.AsyncClient) -> None:
    server, settings = quick_settings
    client, patient = Client(settings), Client(settings.replace(redis_deadline=30))
    use_client(patient)  # 0.3 s can be too little for a busy machine
    assert (await web.post("/orders/ann")).status_code == 200
    use_client(client)
    server.stop()
    for path in ("/orders/ann", "/limited", "/once/2"):
        answer = await web.post(path)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2"), path
        assert answer.json()["detail"].startswith("Temporarily unavailable")
    server.start()
    use_client(patient)
    assert (await web.post("/orders/ann")).status_code == 200
    await client.aclose()
    await patient.aclose()


async def test_the_lifespan_opens_and_closes_the_client_around_the_applications_own(settings: Settings) -> None:
    seen: list[Any] = []

    @asynccontextmanager
    async def own(app: Any) -> AsyncIterator[dict[str, int]]:
        seen.append(app)
        yield {"mine": 1}
        seen.append("left")

    lifespan = relier_lifespan(own, settings=settings)
    async with lifespan("app") as state:
        assert (state, seen) == ({"mine": 1}, ["app"])
        assert clients.default_client().settings.namespace == settings.namespace
        await mail.apush("ann")
    assert seen == ["app", "left"]
    assert clients._default is None
    async with relier_lifespan(settings=settings)("app") as state:
        assert state == {}


async def test_an_application_starts_while_the_store_is_unreachable(
    quick_settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server, settings = quick_settings
    server.stop()
    async with relier_lifespan(settings=settings)("app"):
        assert "the store is unreachable, pushes fail until it is back" in caplog.text


OWN_SETTINGS = [None, Settings(redis_url="redis://127.0.0.1:1", redis_deadline=1)]


@pytest.mark.parametrize("settings", OWN_SETTINGS, ids=["no settings", "settings"])
def test_an_application_in_a_test_pushes_where_the_test_looks(settings: Settings | None) -> None:
    web = FastAPI(lifespan=relier_lifespan(settings=settings))
    web.post("/orders/{email}")(place)
    with recorded() as pushed, TestClient(web) as client:
        assert client.post("/orders/ann").json() == {"pushed": False}
    pushed.assert_pushed(mail, "ann")
    with inline(), TestClient(web) as client:
        assert client.post("/orders/ann").status_code == 200
    with store():
        with TestClient(web) as client:
            assert client.post("/orders/ann").status_code == 200
        assert [(each.name, each.args, each.outcome) for each in run_pending(queues=["default"])] == [
            ("web.mail", ("ann",), "done")
        ]
