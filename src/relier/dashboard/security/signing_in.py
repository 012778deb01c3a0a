"""The page on which people sign in with a token, and signing out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from relier.dashboard.forms import form_of
from relier.dashboard.rendering import render
from relier.dashboard.security.access import SESSION_COOKIE, SESSION_S, TokenAccess
from relier.dashboard.security.protection import keep_csrf_token, set_cookie, trouble_with


def sign_in_routes(tokens: TokenAccess) -> list[Route]:
    """Return the routes for signing in.

    Without tokens, return none: the dashboard is then part of another application, which signs its users in.
    """
    if not tokens:
        return []
    return [
        Route("/login", _form),
        Route("/login", _sign_in, methods=["POST"]),
        Route("/logout", _sign_out, methods=["POST"]),
    ]


async def _form(request: Request) -> Response:
    return _page(request, "", 200)


def _page(request: Request, trouble: str, status: int) -> Response:
    response = HTMLResponse(render(request, "login.html", None, trouble=trouble), status)
    keep_csrf_token(request, response)
    return response


async def _sign_in(request: Request) -> Response:
    form = {name: values[-1] for name, values in (await form_of(request)).items()}
    if trouble := trouble_with(request, form):
        return _page(request, f"You were not signed in: {trouble}.", 403)
    tokens: TokenAccess = request.app.state.dashboard.tokens
    role = tokens.role_of(form.get("token", "").strip())
    if role is None:
        return _page(request, "That token is not known.", 403)
    response = RedirectResponse(f"{request.scope.get('root_path', '')}/", 303)
    name = " ".join(form.get("name", "").split()) or role
    set_cookie(request, response, SESSION_COOKIE, tokens.session_for(role, name), SESSION_S)
    return response


async def _sign_out(request: Request) -> Response:
    form = {name: values[-1] for name, values in (await form_of(request)).items()}
    base = request.scope.get("root_path", "")
    response = RedirectResponse(f"{base}/login", 303)
    if not trouble_with(request, form):
        set_cookie(request, response, SESSION_COOKIE, "", 0)
    return response
