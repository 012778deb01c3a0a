"""Who may use the dashboard: tokens, roles, the host's own sign-in, CSRF, other origins, and the security headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from starlette.testclient import TestClient

from relier.cli.session import CommandFailure
from relier.dashboard import DashboardUser, app
from relier.dashboard.actions import ACTIONS
from relier.dashboard.application import local_app
from relier.dashboard.command import check_exposure, is_loopback
from relier.dashboard.pages import PAGES
from relier.dashboard.security.access import SESSION_COOKIE, TokenAccess
from relier.errors import ConfigurationError
from relier.settings import Settings
from tests.dashboard.pressing import TOKEN, csrf_of, press
from tests.support.cli_desk import Desk

OPERATOR, VIEWER = "operator-token-0123", "viewer-token-012345"


@pytest.fixture
def guarded(desk: Desk, settings: Settings) -> Iterator[TestClient]:
    """The dashboard with tokens."""
    chosen = settings.replace(dashboard_token=OPERATOR, dashboard_viewer_token=VIEWER)
    with TestClient(app(settings=chosen), base_url="http://localhost", follow_redirects=False) as client:
        yield client


def sign_in(web: TestClient, token: str, name: str = "Ann") -> Any:
    found = TOKEN.search(web.get("/login").text)
    assert found is not None
    return web.post("/login", data={"csrf_token": found[1], "token": token, "name": name})


# --- who ---------------------------------------------------------------------------------------------------------


def test_nothing_is_shown_without_a_token(guarded: TestClient) -> None:
    for page in PAGES:
        answer = guarded.get(page.path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
        assert guarded.get(f"/api{page.path if page.path != '/' else '/overview'}").status_code == 401
    for action in ACTIONS:
        assert guarded.post(f"/do/{action}").status_code == 403
        assert guarded.post(f"/api/do/{action}").status_code == 401
    assert guarded.post("/preview").status_code == 403


def test_people_sign_in_with_a_token_and_out_again(guarded: TestClient) -> None:
    assert sign_in(guarded, "wrong").status_code == 403
    answer = sign_in(guarded, OPERATOR)
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert OPERATOR not in cookie
    page = guarded.get("/").text
    assert "Ann" in page
    assert "operator" in page
    guarded.post("/logout", data={"csrf_token": csrf_of(guarded)})
    assert guarded.get("/").status_code == 303


def test_a_session_is_signed_and_ends() -> None:
    now = 1_000.0
    access = TokenAccess(Settings(dashboard_token=OPERATOR, dashboard_viewer_token=VIEWER), lambda: now)

    def user(cookie: str) -> DashboardUser | None:
        return access(Request({"type": "http", "headers": [(b"cookie", f"{SESSION_COOKIE}={cookie}".encode())]}))

    given = access.session_for("viewer", "Bo")
    assert user(given) == DashboardUser("Bo", "viewer")
    endless = f"viewer.{'9' * 5000}.Qm8=.x"  # more digits than Python converts
    forgeries = (given.replace("viewer", "operator"), given[:-1], given.replace(".", "x"), "a.b.c.d", "", ".....")
    for forged in (*forgeries, endless, "viewer.².Qm8=.x"):
        assert user(forged) is None, forged
    now += 13 * 3600
    assert user(given) is None


def test_programs_send_the_token(guarded: TestClient, desk: Desk) -> None:
    desk.push()
    bearer = {"Authorization": f"Bearer {OPERATOR}"}
    assert guarded.get("/api/queues", headers=bearer).json()["queues"][0]["queue"] == "default"
    done = guarded.post("/api/do/queues/pause", json={"queue": "default"}, headers=bearer)
    assert done.json()["says"] == "Queue default is paused."
    assert guarded.get("/api/queues", headers={"Authorization": "Bearer no"}).status_code == 401


def test_a_viewer_sees_everything_and_changes_nothing(guarded: TestClient, desk: Desk) -> None:
    task = desk.dead()
    assert sign_in(guarded, VIEWER, "Vera").status_code == 303
    assert task in guarded.get("/dead").text
    for page in PAGES:
        path = {"task": f"/task?id={task}"}.get(page.name, page.path)
        text = guarded.get(path).text
        assert "/do/" not in text, path
        assert "/preview" not in text, path
    token = TOKEN.search(guarded.get("/").text)  # of the button that signs out
    assert token is not None
    for action in ACTIONS:
        answer = guarded.post(f"/do/{action}", data={"csrf_token": token[1], "id": task})
        assert (answer.status_code, "only operators" in answer.text) == (403, True)
    assert desk.get(task).record.state.value == "dead"
    assert guarded.get("/api/actions").json() == {"actions": []}


def test_the_host_application_says_who_it_is(desk: Desk, settings: Settings) -> None:
    users = {"ann": DashboardUser("ann", "operator"), "bob": DashboardUser("bob")}

    async def auth(request: Request) -> DashboardUser | None:
        return users.get(request.headers.get("x-user", ""))

    host = Starlette(routes=[Mount("/ops/relier", app(auth=auth, settings=settings))])
    web = TestClient(host, base_url="http://shop", headers={"x-user": "ann"}, follow_redirects=False)
    page = web.get("/ops/relier/").text
    links = re.findall(r'(?:href|src|action)="([^"]+)"', page)
    assert all(link.startswith(("/ops/relier/", "#")) for link in links), links
    assert web.get("/ops/relier/static/style.css").status_code == 200
    assert web.get("/ops/relier/login").status_code == 404
    token = csrf_of(web, "/ops/relier/limits")
    done = web.post("/ops/relier/do/queues/pause", data={"csrf_token": token, "queue": "default"})
    assert done.headers["location"].startswith("/ops/relier/queues?said=")
    assert web.get("/ops/relier/api/actions").json()["actions"][0]["user"] == "ann"
    assert web.get("/ops/relier/", headers={"x-user": "eve"}).status_code == 403
    again = {"csrf_token": token, "queue": "default"}
    assert web.post("/ops/relier/do/queues/resume", data=again, headers={"x-user": "bob"}).status_code == 403
    host.routes[0].app.state.dashboard.session._open.close()  # type: ignore[attr-defined]


def test_a_dashboard_that_anybody_could_use_is_refused(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match="needs to know who may use it"):
        app(settings=settings)
    with pytest.raises(ConfigurationError, match="too short"):
        app(settings=settings.replace(dashboard_token="short"))
    with pytest.raises(ConfigurationError, match="are the same"):
        app(settings=settings.replace(dashboard_token=OPERATOR, dashboard_viewer_token=OPERATOR))


def test_the_command_listens_beyond_loopback_only_with_a_token(settings: Settings) -> None:
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.com"):
        with pytest.raises(CommandFailure, match="without a token"):
            check_exposure(settings, host)
        check_exposure(settings.replace(dashboard_token=OPERATOR), host)
    for host in ("127.0.0.1", "::1", "localhost", "127.1.2.3"):
        assert is_loopback(host)
        check_exposure(settings, host)


# --- from where --------------------------------------------------------------------------------------------------


def test_another_name_for_this_machine_is_refused(settings: Settings, web: TestClient) -> None:
    """A page of another site could make its own name resolve to loopback."""
    assert web.get("/", headers={"host": "evil.example"}).status_code == 403
    for host in ("localhost:8642", "127.0.0.1:8642", "[::1]:8642", "127.0.0.1", "[::1]"):
        assert web.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
    ids=["origin", "null", "fetch"],
)
def test_a_request_of_another_site_is_refused(web: TestClient, desk: Desk, headers: dict[str, str]) -> None:
    task = desk.dead()
    answer = press(web, "tasks/discard", headers, id=task)
    assert answer.status_code == 403
    assert "Nothing was changed" in answer.text
    assert desk.get(task).record.state.value == "dead"


def test_every_change_needs_the_csrf_token(web: TestClient, desk: Desk) -> None:
    task = desk.dead()
    csrf_of(web)
    for action in ACTIONS:
        for given in ({}, {"csrf_token": "wrong"}, {"csrf_token": ""}):
            assert web.post(f"/do/{action}", data={"id": task, **given}).status_code == 403
            assert web.post(f"/api/do/{action}", json={"id": task, **given}).status_code == 403
    assert web.post("/preview", data={"id": task, "action": "tasks/replay"}).status_code == 403
    web.cookies.clear()
    assert web.post("/do/tasks/discard", data={"id": task, "csrf_token": ""}).status_code == 403
    assert desk.get(task).record.state.value == "dead"
    basic = {"Authorization": "Basic YTpi"}  # browsers add this one by themselves
    assert web.post("/do/tasks/discard", data={"id": task}, headers=basic).status_code == 403


def test_the_same_origin_is_accepted(web: TestClient, desk: Desk) -> None:
    answer = press(web, "queues/pause", {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}, queue="a")
    assert answer.status_code == 303


def test_a_change_is_never_made_by_a_get(web: TestClient) -> None:
    for action in ACTIONS:
        assert web.get(f"/do/{action}").status_code == 405


# --- headers -----------------------------------------------------------------------------------------------------


def test_pages_allow_no_script_or_style_from_elsewhere_or_inline(web: TestClient, desk: Desk) -> None:
    ids = desk.one_of_each()
    paths = [page.path for page in PAGES] + [f"/task?id={ids['dead']}", "/none", "/static/dashboard.js"]
    for path in paths:
        answer = web.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert not re.search(
            r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|https?://", answer.text.split("<main")[0]
        )
        assert not re.search(r"<script|<style|\sstyle=|\son[a-z]+=", answer.text.partition("<main")[2])
        if not path.startswith("/static"):
            assert answer.headers["cache-control"] == "no-store"


def test_a_cookie_is_for_the_dashboard_alone(settings: Settings, web: TestClient) -> None:
    cookie = web.get("/").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    with TestClient(local_app(settings), base_url="https://localhost") as secure:
        assert "Secure" in secure.get("/").headers["set-cookie"]
