"""The ASGI application: routes, and the path of a request from its user to its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from relier.dashboard import action_log
from relier.dashboard.api import api_path, is_api, json_response
from relier.dashboard.live import feed, socket, wants_feed
from relier.dashboard.openapi import description
from relier.dashboard.operating import operate, preview
from relier.dashboard.pages import PAGES, DashboardPage
from relier.dashboard.problems import Problem, problem_of
from relier.dashboard.query import Query
from relier.dashboard.rendering import render
from relier.dashboard.security.access import Auth, DashboardUser, TokenAccess, anybody_on_loopback, user_of
from relier.dashboard.security.protection import SecurityHeaders, keep_csrf_token
from relier.dashboard.security.signing_in import sign_in_routes
from relier.dashboard.session import DashboardSession
from relier.errors import ConfigurationError
from relier.settings import Settings, get_settings

Endpoint = Callable[[Request], Awaitable[Response]]
Answer = Callable[[Request, DashboardUser], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Hold the objects that all requests of one application share."""

    session: DashboardSession
    auth: Auth
    tokens: TokenAccess


def app(*, auth: Auth | None = None, settings: Settings | None = None) -> Starlette:
    """Return the dashboard as an ASGI application, to be mounted under any prefix.

    `auth(request)` returns a DashboardUser, or None for somebody who may not see the dashboard. It may be a coroutine
    function. Without it, people sign in with the tokens in the settings. Raises ConfigurationError if there is neither.
    """
    chosen = settings or get_settings()
    tokens = TokenAccess(chosen)
    if auth is None and not tokens:
        raise ConfigurationError(
            "the dashboard needs to know who may use it; pass auth=…, or set RELIER_DASHBOARD_TOKEN"
        )
    return build(chosen, auth or tokens, TokenAccess(chosen) if auth is None else TokenAccess(_without(chosen)))


def local_app(settings: Settings) -> Starlette:
    """Return the dashboard of `rl dashboard` on loopback. Without a token, everybody on this machine is an operator."""
    tokens = TokenAccess(settings)
    return build(settings, tokens or anybody_on_loopback, tokens)


def _without(settings: Settings) -> Settings:
    return settings.replace(dashboard_token="", dashboard_viewer_token="")


def build(settings: Settings, auth: Auth, tokens: TokenAccess) -> Starlette:
    routes: list[Any] = [Route(page.path, _guarded(_shown(page))) for page in PAGES]
    routes += [Route(api_path(page), _guarded(_served(page))) for page in PAGES]
    routes += [
        Route("/preview", _guarded(preview), methods=["POST"]),
        Route("/do/{action:path}", _guarded(operate), methods=["POST"]),
        Route("/api/openapi.json", _guarded(_described)),
        Route("/api/do/{action:path}", _guarded(operate), methods=["POST"]),
        WebSocketRoute("/events", socket),
        WebSocketRoute("/api/events", socket),
    ]
    routes += sign_in_routes(tokens)
    routes.append(Mount("/static", StaticFiles(packages=[("relier.dashboard", "static")]), name="static"))
    session = DashboardSession(settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await session.aclose()

    made = Starlette(routes=routes, middleware=[Middleware(SecurityHeaders)], lifespan=lifespan)
    made.state.dashboard = Dashboard(session, auth, tokens)
    return made


def _shown(page: DashboardPage) -> Answer:
    async def answer(request: Request, user: DashboardUser) -> Response:
        if page.name == "events" and wants_feed(request):
            return await feed(request, user)
        session: DashboardSession = request.app.state.dashboard.session
        data, said = await run_in_threadpool(_read, session, page, request)
        return HTMLResponse(render(request, page.template, user, page=page, said=said, **data))

    return answer


def _served(page: DashboardPage) -> Answer:
    """Return the answer of the API: the data of a page as JSON."""

    async def answer(request: Request, user: DashboardUser) -> Response:
        if page.name == "events" and wants_feed(request):
            return await feed(request, user)
        session: DashboardSession = request.app.state.dashboard.session
        data, _ = await run_in_threadpool(_read, session, page, request)
        return json_response(data["data"])

    return answer


def _read(
    session: DashboardSession, page: DashboardPage, request: Request
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Read the data of a page and, after an action, its outcome."""
    session.reach()
    said = request.query_params.get("said", "")
    data = page.read(session, Query(request.query_params))
    return {"data": data}, action_log.outcome_of(session, said) if said else None


async def _described(request: Request, user: DashboardUser) -> Response:  # noqa: ARG001 - viewers may read everything
    return json_response(description(request.scope.get("root_path", "")))


def _guarded(answer: Answer) -> Endpoint:
    """Wrap an answer: ask who sends the request, and show errors as pages."""

    async def endpoint(request: Request) -> Response:
        dashboard: Dashboard = request.app.state.dashboard
        user = await user_of(dashboard.auth, request)
        if user is None:
            return _refused(request, dashboard)
        try:
            response = await answer(request, user)
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                raise
            response = _problem_page(request, user, problem)
        keep_csrf_token(request, response)
        return response

    return endpoint


def _refused(request: Request, dashboard: Dashboard) -> Response:
    if is_api(request) and dashboard.tokens:
        return json_response({"error": "Send the header `Authorization: Bearer <token>`."}, 401)
    if dashboard.tokens and request.method == "GET":
        base = request.scope.get("root_path", "")
        return RedirectResponse(f"{base}/login", 303)
    problem = Problem(403, "You may not use this dashboard", "Sign in to the application that shows it.")
    return _problem_page(request, None, problem)


def _problem_page(request: Request, user: DashboardUser | None, problem: Problem) -> Response:
    if is_api(request):
        return json_response({"error": problem.says}, problem.status)
    return HTMLResponse(render(request, "problem.html", user, problem=problem), problem.status)
