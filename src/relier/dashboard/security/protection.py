"""Protect the pages: security headers on every answer; a CSRF token and the same origin for every change.

The token is random, in a cookie that other sites cannot read, and repeated in each form. A request with a bearer token
needs none: browsers do not add that header by themselves.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CSRF_COOKIE = "relier_csrf"
CSRF_FIELD = "csrf_token"
CSRF_HEADER = "x-csrf-token"
POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'; "
    "img-src 'self' data:"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityHeaders:
    """Add the headers to every answer. Pages hold private data, so only static files may be kept in a cache."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


def csrf_token(request: Request) -> str:
    """Return the token of this browser: that of its cookie, or a new one."""
    known = request.cookies.get(CSRF_COOKIE, "")
    if len(known) == 43 and known.replace("-", "").replace("_", "").isalnum():
        return known
    if not hasattr(request.state, "csrf"):
        request.state.csrf = secrets.token_urlsafe(32)
    return str(request.state.csrf)


def keep_csrf_token(request: Request, response: Response) -> None:
    """Set the cookie of a token that is new."""
    if hasattr(request.state, "csrf"):
        set_cookie(request, response, CSRF_COOKIE, request.state.csrf, None)


def set_cookie(request: Request, response: Response, name: str, value: str, seconds: int | None) -> None:
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=request.scope.get("root_path") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def origin_trouble(request: Request) -> str:
    """Return why a request must be refused because of the page that sends it, or an empty text."""
    if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return "the request comes from another site"
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        return "the request comes from another origin"
    return ""


def trouble_with(request: Request, form: dict[str, Any]) -> str:
    """Return why a request that changes something must be refused, or an empty text."""
    if request.headers.get("authorization", "").lower().startswith("bearer "):
        return ""
    if trouble := origin_trouble(request):
        return trouble
    known = request.cookies.get(CSRF_COOKIE, "")
    given = request.headers.get(CSRF_HEADER) or str(form.get(CSRF_FIELD, ""))
    if not known or not hmac.compare_digest(known.encode(), given.encode()):
        return "its CSRF token is missing or wrong; reload the page, and try again"
    return ""
