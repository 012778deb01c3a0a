"""Who sends a request, and what they may do.

There are three ways to know: the host application's own sign-in (a callable), tokens (RELIER_DASHBOARD_TOKEN and
RELIER_DASHBOARD_VIEWER_TOKEN), and, for `rl dashboard` on loopback without a token, being on this machine. With tokens,
people sign in on a page and get a signed cookie; programs send `Authorization: Bearer <token>`.

The cookie holds role, name and end of life, signed with the token. So it needs no storage, works on every node with the
same token, and ends when the token changes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from relier.errors import ConfigurationError
from relier.settings import Settings

RoleName = Literal["viewer", "operator"]
ROLES: tuple[RoleName, ...] = ("viewer", "operator")
SESSION_COOKIE = "relier_session"
SESSION_S = 12 * 3600
SHORTEST_TOKEN = 16
DIGITS = re.compile(r"[0-9]{1,12}")
LONGEST_NAME = 60
LIFE_END = re.compile(r"[0-9]{1,12}")
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class DashboardUser:
    """Somebody who uses the dashboard. A viewer sees everything; an operator may also change things."""

    name: str
    role: RoleName = "viewer"

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ConfigurationError(f"the role of a user is viewer or operator, not {self.role!r:.40}")

    @property
    def is_operator(self) -> bool:
        return self.role == "operator"


Auth = Callable[[Request], DashboardUser | Awaitable[DashboardUser | None] | None]


class TokenAccess:
    """Recognise people and programs by the tokens in the settings."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        given: dict[RoleName, str] = {
            "operator": settings.dashboard_token.get_secret_value(),
            "viewer": settings.dashboard_viewer_token.get_secret_value(),
        }
        self._tokens = {role: token for role, token in given.items() if token}
        self._clock = clock
        for role, token in self._tokens.items():
            if len(token) < SHORTEST_TOKEN:
                raise ConfigurationError(
                    f"the dashboard's token for {role}s is too short; use at least {SHORTEST_TOKEN} characters, such "
                    f"as those of `openssl rand -hex 16`"
                )
        if len(set(self._tokens.values())) < len(self._tokens):
            raise ConfigurationError("the tokens of operators and viewers are the same; use different ones")

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def __call__(self, request: Request) -> DashboardUser | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            role = self.role_of(token.strip())
            return DashboardUser(f"token of {role}s", role) if role else None
        return self._user_in(request.cookies.get(SESSION_COOKIE, ""))

    def role_of(self, token: str) -> RoleName | None:
        """Return the role that a token gives. All tokens are compared, in constant time."""
        found = [role for role, known in self._tokens.items() if hmac.compare_digest(known.encode(), token.encode())]
        return found[0] if found else None

    def session_for(self, role: RoleName, name: str) -> str:
        """Return the value of the cookie for somebody who has just signed in."""
        named = base64.urlsafe_b64encode(name[:LONGEST_NAME].encode()).decode()
        plain = f"{role}.{int(self._clock()) + SESSION_S}.{named}"
        return f"{plain}.{self._signature(role, plain)}"

    def _user_in(self, cookie: str) -> DashboardUser | None:
        plain, _, signature = cookie.rpartition(".")
        role, until, named = (*plain.split("."), "", "", "")[:3]
        if role not in self._tokens or not LIFE_END.fullmatch(until) or int(until) <= self._clock():
            return None
        known: RoleName = "operator" if role == "operator" else "viewer"
        if not hmac.compare_digest(self._signature(known, plain).encode(), signature.encode()):
            return None
        return DashboardUser(base64.urlsafe_b64decode(named).decode("utf-8", "replace"), known)

    def _signature(self, role: RoleName, plain: str) -> str:
        key = f"relier dashboard session\n{self._tokens[role]}".encode()
        return hmac.new(key, plain.encode(), hashlib.sha256).hexdigest()


def anybody_on_loopback(request: Request) -> DashboardUser | None:
    """Let everybody on this machine operate. A page of another site that resolves to loopback is refused."""
    host = request.headers.get("host", "")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return DashboardUser("local", "operator") if name in LOOPBACK_HOSTS else None


async def user_of(auth: Auth, request: Request) -> DashboardUser | None:
    """Ask who sends a request. Plain functions run in a thread, because they may read a database."""
    if inspect.iscoroutinefunction(auth) or inspect.iscoroutinefunction(getattr(auth, "__call__", None)):  # noqa: B004
        found: Any = await auth(request)  # type: ignore[misc]
    else:
        found = await run_in_threadpool(auth, request)
        found = await found if inspect.isawaitable(found) else found
    if found is not None and not isinstance(found, DashboardUser):
        raise ConfigurationError(f"auth of the dashboard must return a DashboardUser or None, not {found!r:.60}")
    return found
