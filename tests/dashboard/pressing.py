"""Press the dashboard's buttons as a browser does: with the CSRF token of a page."""

from __future__ import annotations

import re
from typing import Any

from httpx2 import Response
from starlette.testclient import TestClient

TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')


def csrf_of(web: TestClient, path: str = "/limits") -> str:
    found = TOKEN.search(web.get(path).text)
    assert found is not None, f"{path} has no form that changes something"
    return found[1]


def press(web: TestClient, action: str, headers: dict[str, str] | None = None, **fields: Any) -> Response:
    """Send the form of a button."""
    given = {"csrf_token": csrf_of(web), **fields}
    return web.post(f"/do/{action}", data=given, headers=headers or {})


def pressed(web: TestClient, action: str, **fields: Any) -> str:
    """Send the form of a button that must work. Return the page that follows."""
    answer = press(web, action, **fields)
    assert answer.status_code == 303, answer.text
    page = web.get(answer.headers["location"])
    return page.text
