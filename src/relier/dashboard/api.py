"""The JSON API: the data of every page under /api, with the same sign-in."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from relier.dashboard.pages import DashboardPage

PREFIX = "/api"


def api_path(page: DashboardPage) -> str:
    """Return where the API serves the data of a page."""
    return f"{PREFIX}/overview" if page.path == "/" else f"{PREFIX}{page.path}"


def is_api(request: Request) -> bool:
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return path.startswith(f"{PREFIX}/")


def json_response(data: Any, status: int = 200) -> Response:
    return Response(json.dumps(data, ensure_ascii=False, default=str), status, media_type="application/json")
