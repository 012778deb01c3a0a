"""Every button on every page in a real browser: as an operator, as a viewer, and from a page of another site.

The buttons are found on the pages themselves, so a new one cannot be forgotten.
"""

from __future__ import annotations

import html
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from starlette.testclient import TestClient

from relier.dashboard import app
from relier.dashboard.actions import ACTIONS
from relier.dashboard.application import local_app
from relier.ledger.limit_overview import set_limit
from relier.ledger.limit_records import LimitNumbers
from relier.ledger.nodes import Orders
from relier.settings import Settings
from tests.dashboard.screens import paths_of
from tests.dashboard.serving import served
from tests.dashboard.shop_data import fill
from tests.support.chromium import open_browser
from tests.support.cli_desk import Desk
from tests.support.servers import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
PATIENCE_S = 60.0
OPERATOR, VIEWER = "operator-token-0123", "viewer-token-012345"
SEND = """
const form = document.createElement("form");
form.method = "post"; form.action = arguments[0];
for (const [name, value] of arguments[1]) {
  const field = document.createElement("input");
  field.name = name; field.value = value; form.append(field);
}
document.body.append(form); form.submit();
"""


@dataclass(frozen=True, slots=True)
class Button:
    """What a button of a page sends."""

    action: str
    fields: tuple[tuple[str, str], ...]


class FormReader(HTMLParser):
    """Collects the forms of a page that change something, one Button for each of their buttons."""

    def __init__(self) -> None:
        super().__init__()
        self.buttons: list[Button] = []
        self._action = ""
        self._fields: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._action, self._fields = (given["action"] if given.get("method") == "post" else ""), []
        elif not self._action:
            return
        elif tag in {"input", "textarea"} and given.get("name") and given["name"] != "csrf_token":
            self._fields.append((given["name"], given.get("value", "1")))
        elif tag == "button":
            own = [(given["name"], given["value"])] if given.get("name") else []
            self.buttons.append(Button(self._action, (*self._fields, *own)))

    def handle_endtag(self, tag: str) -> None:
        self._action = "" if tag == "form" else self._action


def buttons_in(text: str) -> list[Button]:
    reader = FormReader()
    reader.feed(text)
    return [button for button in reader.buttons if not button.action.endswith(("/login", "/logout"))]


@pytest.fixture
def ids(desk: Desk) -> dict[str, str]:
    found = fill(desk)
    desk.run(desk.ledger.pause("mail", 0))
    desk.run(desk.ledger.order(desk.boot, Orders(draining=True)))
    set_limit(desk.run, desk.ledger, "tenant:42", LimitNumbers(2))
    return found


@pytest.fixture
def buttons(ids: dict[str, str], settings: Settings, desk: Desk) -> list[Button]:
    """The different buttons of all pages, as an operator sees them: one for each action and each preview."""
    found: dict[tuple[str, str], Button] = {}
    with TestClient(local_app(settings), base_url="http://localhost") as web:
        for path in (*paths_of(ids).values(), "/tasks?state=dead", f"/tasks?id={ids['dead']}"):
            for button in buttons_in(web.get(path).text):
                found.setdefault((button.action, dict(button.fields).get("action", "")), button)
    return list(found.values())


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    with open_browser(tmp_path) as opened:
        yield opened


def send(browser: webdriver.Chrome, url: str, fields: list[tuple[str, str]]) -> str:
    """Send a form as a page does. Return what the browser shows then."""
    before = browser.find_element(By.TAG_NAME, "html")
    browser.execute_script(SEND, url, fields)
    wait_until(lambda: browser.find_element(By.TAG_NAME, "html") != before, PATIENCE_S, f"{url} answered")
    wait_until(lambda: browser.find_elements(By.TAG_NAME, "main"), PATIENCE_S, "a page of the dashboard")
    return browser.find_element(By.TAG_NAME, "main").text


def csrf_in(browser: webdriver.Chrome) -> str:
    found = browser.find_element(By.CSS_SELECTOR, "input[name=csrf_token]").get_attribute("value")
    assert found
    return found


def test_the_pages_have_a_button_for_every_action(buttons: list[Button]) -> None:
    actions = {button.action.removeprefix("/do/") for button in buttons} - {"/preview"}
    previews = {dict(button.fields)["action"] for button in buttons if button.action == "/preview"}
    assert previews == {"tasks/cancel", "tasks/replay", "tasks/discard"}
    assert actions | previews == set(ACTIONS)


def test_an_operator_may_press_every_button(
    browser: webdriver.Chrome, buttons: list[Button], settings: Settings
) -> None:
    with served(local_app(settings)) as address:
        for button in buttons:
            browser.get(f"{address}/limits")
            said = send(browser, f"{address}{button.action}", [("csrf_token", csrf_in(browser)), *button.fields])
            assert "Not allowed" not in said, button
        with TestClient(local_app(settings), base_url="http://localhost") as web:
            done = {action["action"] for action in web.get("/api/actions").json()["actions"]}
    assert done == {button.action.removeprefix("/do/") for button in buttons} - {"/preview"}


def test_a_viewer_is_refused_at_every_button(
    browser: webdriver.Chrome, buttons: list[Button], settings: Settings
) -> None:
    chosen = settings.replace(dashboard_token=OPERATOR, dashboard_viewer_token=VIEWER)
    with served(app(settings=chosen)) as address:
        browser.get(f"{address}/login")
        browser.find_element(By.ID, "token").send_keys(VIEWER)
        browser.find_element(By.ID, "name").send_keys("Vera", Keys.ENTER)
        wait_until(lambda: browser.find_elements(By.CSS_SELECTOR, ".user"), PATIENCE_S, "signed in")
        for button in buttons:
            browser.get(f"{address}/queues")
            said = send(browser, f"{address}{button.action}", [("csrf_token", csrf_in(browser)), *button.fields])
            assert "Vera is a viewer" in said, button
    assert_nothing_was_done(settings)


@contextmanager
def another_site() -> Iterator[str]:
    """Serve a page on another origin that sends whatever form its address describes."""

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = dict(parse_qsl(urlsplit(self.path).query))
            fields = json.loads(asked.get("fields", "[]"))
            inputs = "".join(f'<input name="{html.escape(n)}" value="{html.escape(v)}">' for n, v in fields)
            page = (
                f'<form method="post" action="{html.escape(asked.get("to", ""))}">{inputs}<button>Win</button></form>'
            )
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://localhost:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_page_of_another_site_is_refused_at_every_button(
    browser: webdriver.Chrome, buttons: list[Button], settings: Settings
) -> None:
    """Even if it knows the CSRF token, and the person is an operator of the dashboard in the same browser."""
    with served(local_app(settings)) as address, another_site() as site:
        browser.get(f"{address}/limits")
        token = csrf_in(browser)
        for button in buttons:
            fields = [("csrf_token", token), *button.fields]
            browser.get(f"{site}?{urlencode({'to': address + button.action, 'fields': json.dumps(fields)})}")
            browser.find_element(By.TAG_NAME, "button").click()
            wait_until(lambda: browser.find_elements(By.TAG_NAME, "main"), PATIENCE_S, "the dashboard answered")
            assert "Nothing was changed" in browser.find_element(By.TAG_NAME, "main").text, button
    assert_nothing_was_done(settings)


def assert_nothing_was_done(settings: Settings) -> None:
    with TestClient(local_app(settings), base_url="http://localhost") as web:
        assert web.get("/api/actions").json()["actions"] == []
