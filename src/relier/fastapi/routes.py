"""Serve what tasks.py answers: as a router for FastAPI, and as routes for Starlette.

GET  /tasks/{task_id}           status
GET  /tasks/{task_id}/result    result
GET  /tasks/{task_id}/events    progress, as server-sent events
POST /tasks/{task_id}/cancel    cancellation

`may_use(request, task_id)` decides who may use a task (owners.py). It is required. If the user may not
use the task, the answer is the same as for a task that does not exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from relier.errors import ConfigurationError
from relier.fastapi import tasks
from relier.fastapi.owners import MayUse, check_may_use, is_allowed
from relier.fastapi.tasks import NOT_FOUND, Answer
from relier.submit.client import Client, default_client

if TYPE_CHECKING:
    from fastapi import APIRouter

Ask = Callable[[Client, str], Awaitable[Answer]]

QUESTIONS: tuple[tuple[str, str, Ask, str], ...] = (
    ("GET", "", tasks.status, "Status of a task: 202 while it has not ended, 200 once it has"),
    ("GET", "/result", tasks.result, "Result of a task: 202 while there is none, 410 if there will be none"),
    ("POST", "/cancel", tasks.cancel, "Cancel a task: 202 if it will be cancelled, 409 if it has ended"),
)
CODES = {202: "it has not ended", 404: "there is no such task", 410: "it is no longer kept, or has no result"}


def task_routes(*, may_use: MayUse, prefix: str = "/tasks") -> list[Route]:
    """Return routes for Starlette: `Starlette(routes=[*task_routes(may_use=…)])`."""
    _check(may_use, prefix)
    served = [
        Route(f"{prefix}/{{task_id}}{path}", _endpoint(may_use, ask), methods=[method])
        for method, path, ask, _ in QUESTIONS
    ]
    return [*served, Route(f"{prefix}/{{task_id}}/events", _events_endpoint(may_use))]


def task_router(*, may_use: MayUse, prefix: str = "/tasks", **options: Any) -> APIRouter:
    """Return a router for FastAPI: `app.include_router(task_router(may_use=…))`. `options`: those of an APIRouter."""
    from fastapi import APIRouter

    _check(may_use, prefix)
    router = APIRouter(prefix=prefix, **{"tags": ["tasks"], **options})
    responses: Any = {code: {"description": text} for code, text in CODES.items()}
    for method, path, ask, summary in QUESTIONS:
        endpoint = _with_task_id(_endpoint(may_use, ask))
        route = f"/{{task_id}}{path}"
        router.add_api_route(
            route, endpoint, methods=[method], summary=summary, responses=responses, response_class=Response
        )
    endpoint = _with_task_id(_events_endpoint(may_use))
    summary = "Progress of a task as server-sent events: `progress`, then `end`"
    router.add_api_route("/{task_id}/events", endpoint, summary=summary, response_class=StreamingResponse)
    return router


def _endpoint(may_use: MayUse, ask: Ask) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        task_id = request.path_params["task_id"]
        answer = await ask(default_client(), task_id) if await is_allowed(may_use, request, task_id) else NOT_FOUND
        return _response(answer)

    return endpoint


def _events_endpoint(may_use: MayUse) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        client, task_id = default_client(), request.path_params["task_id"]
        answer = await tasks.status(client, task_id) if await is_allowed(may_use, request, task_id) else NOT_FOUND
        if answer.status >= 400:
            return _response(answer)
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # proxies must not collect events
        return StreamingResponse(tasks.events(client, task_id), media_type="text/event-stream", headers=headers)

    return endpoint


def _with_task_id(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    """Return the endpoint with `task_id` in its signature, where FastAPI's documentation shows it."""

    async def documented(request: Request, task_id: str) -> Response:  # noqa: ARG001 - the endpoint reads the path
        return await endpoint(request)

    return documented


def _response(answer: Answer) -> Response:
    return Response(answer.json, answer.status, answer.headers, "application/json")


def _check(may_use: Any, prefix: str) -> None:
    check_may_use(may_use)
    if not prefix.startswith("/") or prefix.endswith("/"):
        raise ConfigurationError(f"prefix must begin with a slash and must not end with one, not {prefix!r}")
