"""The routes for tasks, in FastAPI and in Starlette: who may use them, and what they answer."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import Depends, FastAPI, Request
from starlette.applications import Starlette

from relier import ConfigurationError, TaskContext, TaskReceipt, rl_task
from relier.fastapi import anyone, new_owned_id, owner_in, receipt_for, task_router, task_routes
from tests.support.crew import Crew, until

pytestmark = pytest.mark.anyio


@rl_task(name="web.report")
async def report(ctx: TaskContext, pages: int) -> dict[str, Any]:
    for page in range(pages + 1):
        ctx.progress(page, pages, f"page {page}")
    return {"pages": pages, "at": datetime(2030, 1, 1, tzinfo=UTC)}


progress_seen = threading.Event()


@rl_task(name="web.held_report")
def held_report(ctx: TaskContext) -> None:
    ctx.progress(3, 3, "page 3")
    progress_seen.wait(20)


@rl_task(name="web.fails")
async def fails() -> None:
    raise ValueError("secret detail")


def current_user(request: Request) -> str | None:
    return request.headers.get("x-user")


async def current_user_async(request: Request) -> str | None:
    return request.headers.get("x-user")


fast = FastAPI()
fast.include_router(task_router(may_use=owner_in(current_user_async)))
ReportReceipt = Annotated[TaskReceipt[dict[str, Any]], Depends(receipt_for(report, may_use=owner_in(current_user)))]


@fast.get("/reports/{task_id}")
async def read_report(receipt: ReportReceipt) -> dict[str, Any]:
    return {"state": await receipt.state(), "pages": (await receipt.result(timeout=20))["pages"]}


APPS: dict[str, Any] = {"fastapi": fast, "starlette": Starlette(routes=task_routes(may_use=owner_in(current_user)))}


@pytest.fixture(params=APPS)
async def web(request: pytest.FixtureRequest) -> Any:
    transport = httpx2.ASGITransport(app=APPS[request.param])
    async with httpx2.AsyncClient(transport=transport, base_url="http://shop", headers={"x-user": "ann"}) as client:
        yield client


async def test_the_status_and_the_result_of_a_task_are_served(crew: Crew, web: httpx2.AsyncClient) -> None:
    receipt = await report.with_options(task_id=new_owned_id("ann")).apush(3)
    waiting = await web.get(f"/tasks/{receipt.id}")
    assert (waiting.status_code, waiting.headers["retry-after"]) == (202, "1")
    assert waiting.json() == {"id": receipt.id, "name": "web.report", "state": "queued", "attempt": 0}
    assert (await web.get(f"/tasks/{receipt.id}/result")).status_code == 202
    async with crew.working():
        await receipt.result(timeout=20)
    done = await web.get(f"/tasks/{receipt.id}")
    assert (done.status_code, done.json()["state"]) == (200, "done")
    result = await web.get(f"/tasks/{receipt.id}/result")
    assert result.status_code == 200
    assert result.json()["result"] == {"pages": 3, "at": "2030-01-01T00:00:00Z"}


async def test_a_task_without_a_result_is_gone(crew: Crew, web: httpx2.AsyncClient) -> None:
    receipt = await fails.with_options(task_id=new_owned_id("ann")).apush()
    async with crew.working():
        await until(lambda: crew.get(receipt.id).record.state.value == "dead")
    result = await web.get(f"/tasks/{receipt.id}/result")
    assert (result.status_code, result.json()["reason"]) == (410, "ValueError")
    assert "secret" not in result.text
    assert (await web.post(f"/tasks/{receipt.id}/cancel")).status_code == 409


async def test_a_task_is_cancelled(crew: Crew, web: httpx2.AsyncClient) -> None:
    receipt = await report.with_options(task_id=new_owned_id("ann"), delay=60).apush(3)
    cancelled = await web.post(f"/tasks/{receipt.id}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert (await web.get(f"/tasks/{receipt.id}/result")).status_code == 410


async def test_nobody_reads_cancels_or_follows_the_task_of_another(crew: Crew, web: httpx2.AsyncClient) -> None:
    receipt = await report.with_options(task_id=new_owned_id("bob"), delay=60).apush(3)
    plain = await report.with_options(delay=60).apush(3)
    unknown = (await web.get(f"/tasks/{new_owned_id('ann')}")).json()
    for task_id in (receipt.id, plain.id):
        for method, path in (("GET", ""), ("GET", "/result"), ("GET", "/events"), ("POST", "/cancel")):
            answer = await web.request(method, f"/tasks/{task_id}{path}")
            assert (answer.status_code, answer.json()) == (404, unknown), (method, path)
    anonymous = await web.get(f"/tasks/{receipt.id}", headers={"x-user": ""})
    assert anonymous.status_code == 404
    assert crew.get(receipt.id).record.state.value == "scheduled"


async def test_progress_is_followed_to_the_end(crew: Crew, web: httpx2.AsyncClient) -> None:
    progress_seen.clear()
    receipt = await held_report.with_options(task_id=new_owned_id("ann")).apush()
    async with crew.working(), asyncio.TaskGroup() as group:
        following = group.create_task(web.get(f"/tasks/{receipt.id}/events"))
        await until(lambda: crew.get(receipt.id).record.progress)
        progress_seen.set()
    answer = following.result()
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [
        (block.splitlines()[0].removeprefix("event: "), json.loads(block.splitlines()[1].removeprefix("data: ")))
        for block in answer.text.split("\n\n")
        if block.startswith("event: ")
    ]
    name, last = events[-1]
    assert (name, last["state"]) == ("end", "done")
    assert all(name == "progress" for name, _ in events[:-1])
    assert last["progress"] == {"done": 3.0, "total": 3.0, "note": "page 3"}


async def test_an_endpoint_gets_the_receipt_of_its_owner(crew: Crew) -> None:
    receipt = await report.with_options(task_id=new_owned_id("ann")).apush(3)
    async with crew.working():
        await receipt.result(timeout=20)
    transport = httpx2.ASGITransport(app=fast)
    async with httpx2.AsyncClient(transport=transport, base_url="http://shop") as web:
        own = await web.get(f"/reports/{receipt.id}", headers={"x-user": "ann"})
        other = await web.get(f"/reports/{receipt.id}", headers={"x-user": "bob"})
    assert (own.status_code, own.json()) == (200, {"state": "done", "pages": 3})
    assert (other.status_code, other.json()) == (404, {"detail": "There is no such task."})
    (parameter,) = fast.openapi()["paths"]["/reports/{task_id}"]["get"]["parameters"]
    assert (parameter["name"], parameter["in"]) == ("task_id", "path")


def test_the_routes_need_to_know_who_may_use_a_task() -> None:
    wrong: Any = None
    with pytest.raises(ConfigurationError, match="may_use must be a function of a request and a task id"):
        task_router(may_use=wrong)
    with pytest.raises(ConfigurationError, match="must begin with a slash"):
        task_routes(may_use=anyone, prefix="jobs/")
    assert task_routes(may_use=anyone, prefix="/jobs")[0].path == "/jobs/{task_id}"


def test_the_documentation_of_the_api_shows_the_routes() -> None:
    paths = APPS["fastapi"].openapi()["paths"]
    assert {"/tasks/{task_id}", "/tasks/{task_id}/result", "/tasks/{task_id}/events", "/tasks/{task_id}/cancel"} <= set(
        paths
    )
    assert paths["/tasks/{task_id}"]["get"]["parameters"][0]["name"] == "task_id"
