"""The dashboard in a real browser: every page on every screen, every button, live pages, and accessibility."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from relier.dashboard import app
from relier.dashboard.application import local_app
from relier.dashboard.reads import search
from relier.settings import Settings
from tests.dashboard.screens import PRESS, SCREENS, THEMES, paths_of, set_screen
from tests.dashboard.serving import served
from tests.dashboard.shop_data import fill
from tests.support.chromium import open_browser
from tests.support.cli_desk import Desk
from tests.support.servers import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PATIENCE_S = 60.0
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
RUN_AXE = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(
  (found) => done(found.violations.filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => [one.id, one.nodes.map((node) => node.html + " " + node.failureSummary)])),
  (error) => done([["failed", [String(error)]]]));
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with open_browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def ids(desk: Desk) -> dict[str, str]:
    return fill(desk)


@pytest.fixture
def address(ids: dict[str, str], settings: Settings) -> Iterator[str]:
    with served(local_app(settings)) as url:
        yield url


def open_page(browser: webdriver.Chrome, url: str) -> None:
    browser.get(url)
    wait_until(lambda: browser.find_element(By.ID, "live").text.endswith("live"), PATIENCE_S, f"{url} is open")


def press(browser: webdriver.Chrome, label: str, within: str = "main") -> str:
    """Press a button, answer its question with yes, and return what the next page says."""
    before = browser.find_element(By.TAG_NAME, "html")
    browser.execute_script(PRESS, f"//{within}//button[normalize-space()='{label}']")
    wait_until(lambda: browser.find_element(By.TAG_NAME, "html") != before, PATIENCE_S, f"{label} leads on")
    wait_until(lambda: browser.find_elements(By.CSS_SELECTOR, "footer"), PATIENCE_S, "the page has loaded")
    return browser.find_element(By.TAG_NAME, "main").text


def problems_in(browser: webdriver.Chrome) -> list[str]:
    """Return what the browser refused or failed to run."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_every_page_is_accessible_and_breaks_no_policy(
    browser: webdriver.Chrome, address: str, ids: dict[str, str]
) -> None:
    faults: dict[str, Any] = {}
    browser.get_log("browser")
    for screen in SCREENS:
        for theme in THEMES:
            set_screen(browser, screen, theme)
            for name, path in paths_of(ids).items():
                open_page(browser, f"{address}{path}")
                wider = browser.execute_script("return document.documentElement.scrollWidth > window.innerWidth")
                assert not wider, f"{name} is wider than a {screen}"
                browser.execute_script(AXE)
                if found := browser.execute_async_script(RUN_AXE):
                    faults[f"{name} {screen} {theme}"] = found
    assert faults == {}
    assert problems_in(browser) == []


def test_every_button_works(browser: webdriver.Chrome, address: str, ids: dict[str, str], desk: Desk) -> None:
    set_screen(browser, "desktop", "light")

    def on(path: str, label: str, within: str = "main") -> str:
        open_page(browser, f"{address}{path}")
        return press(browser, label, within)

    assert "Queue mail is paused." in on("/queues?q=mail", "Pause")
    assert "Queue mail is running." in on("/queues?q=mail", "Resume")
    assert "cancelled, or asked to stop" in on(f"/task?id={ids['running']}", "Cancel")
    assert "1 task was replayed." in on(f"/task?id={ids['dead']}", "Replay")
    assert "1 task was discarded." in on(f"/task?id={desk.done(queue='own')}", "Discard")
    assert "1 task was replayed." in on(f"/task?id={desk.dead(queue='own')}", "Replay from the start")
    assert "Schedule nightly-report is paused." in on("/schedule?name=nightly-report", "Pause")
    assert "Schedule nightly-report is active." in on("/schedule?name=nightly-report", "Resume")
    assert "was pushed as" in on("/schedules?q=nightly", "Run now")
    assert "Schedule refresh-stock is active." in on("/schedules?q=refresh", "Resume")
    assert "was ordered to drain" in on("/nodes?q=web2", "Drain")
    assert "was ordered to resume" in on("/nodes?q=web2", "Resume")
    assert "is cancelled." in on("/batches", "Cancel")
    open_page(browser, f"{address}/limits")
    browser.find_element(By.NAME, "name").send_keys("tenant:42")
    browser.find_element(By.NAME, "concurrency").send_keys("3")
    assert "Limit tenant:42 allows" in press(browser, "Set")
    assert "Limit tenant:42 is cleared" in on("/limits", "Clear")
    assert "queues/pause" in _text_of(browser, f"{address}/actions")


def test_dead_letters_are_edited_and_replayed_in_bulk(browser: webdriver.Chrome, address: str, desk: Desk) -> None:
    set_screen(browser, "desktop", "dark")
    task = desk.dead("Broken", name="shop.fix", queue="own")
    open_page(browser, f"{address}/task?id={task}")
    browser.find_element(By.CSS_SELECTOR, "#edit summary").click()
    box = browser.find_element(By.ID, "arguments")
    box.clear()
    box.send_keys('[["fixed"], {}]')
    assert "was replayed with other arguments" in press(browser, "Replay with these arguments")
    assert "fixed" in browser.find_element(By.TAG_NAME, "main").text
    open_page(browser, f"{address}/dead?reason=PaymentDeclined")
    browser.find_element(By.CSS_SELECTOR, ".pick-all").click()
    assert "4 tasks." in press(browser, "Replay selected…")
    assert "4 tasks were replayed." in press(browser, "Replay dead tasks")
    open_page(browser, f"{address}/dead")
    assert "shop.payments.refund" in press(browser, "Discard…", "tr[th/a='TimeoutError']")
    assert "1 task was discarded." in press(browser, "Discard ended tasks")


def test_a_page_changes_without_a_reload(browser: webdriver.Chrome, address: str, desk: Desk) -> None:
    set_screen(browser, "desktop", "light")
    task = desk.push(queue="later", name="shop.slow")
    open_page(browser, f"{address}/task?id={task}")
    wait_until(lambda: browser.find_element(By.ID, "live").get_attribute("data-state") == "on", PATIENCE_S, "live")
    browser.execute_script("window.same = true")
    lease = desk.claim("later").lease
    heading = lambda: browser.execute_script("return document.querySelector('h1').textContent")  # noqa: E731
    wait_until(lambda: heading() == "shop.slow running", PATIENCE_S, "the page shows that it runs")
    desk.run(desk.ledger.commit([(lease, b'"well"', ())]))
    wait_until(lambda: heading() == "shop.slow done", PATIENCE_S, "the page shows the end")
    assert browser.execute_script("return window.same")


def test_the_keyboard_finds_a_task_and_the_theme_is_kept(
    browser: webdriver.Chrome, address: str, ids: dict[str, str]
) -> None:
    set_screen(browser, "desktop", "light")
    open_page(browser, f"{address}/queues")
    browser.find_element(By.TAG_NAME, "body").send_keys("/")
    assert browser.switch_to.active_element.get_attribute("id") == "search"
    browser.switch_to.active_element.send_keys(ids["dead"][:20], Keys.ENTER)
    wait_until(lambda: ids["dead"] in _main(browser), PATIENCE_S, "the task is found")
    browser.find_element(By.ID, "theme").click()
    browser.refresh()
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"
    browser.find_element(By.ID, "theme").click()


def test_a_viewer_signs_in_and_finds_no_buttons(
    browser: webdriver.Chrome, ids: dict[str, str], settings: Settings
) -> None:
    chosen = settings.replace(dashboard_token="operator-token-0123", dashboard_viewer_token="viewer-token-012345")
    with served(app(settings=chosen)) as address:
        browser.get(f"{address}/queues")
        browser.find_element(By.ID, "token").send_keys("viewer-token-012345")
        browser.find_element(By.ID, "name").send_keys("Vera", Keys.ENTER)
        wait_until(lambda: "Needs attention" in _main(browser), PATIENCE_S, "signed in")
        for path in paths_of(ids).values():
            browser.get(f"{address}{path}")
            assert not browser.find_elements(By.CSS_SELECTOR, "main form[method=post]"), path
        browser.delete_all_cookies()


def test_times_are_entered_in_the_zone_of_the_viewer(browser: webdriver.Chrome, address: str) -> None:
    set_screen(browser, "desktop", "light")
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kolkata"})  # five and a half hours
    try:
        open_page(browser, f"{address}/dead")
        field = browser.find_element(By.NAME, "since")
        browser.execute_script("arguments[0].value = '2026-11-19T14:05:00'", field)
        press_filter = "document.querySelector('main .filters button').click()"
        browser.execute_script(press_filter)
        wait_until(lambda: "since=" in browser.current_url, PATIENCE_S, "the filter applies")
        assert "since=2026-11-19T08%3A35%3A00Z" in browser.current_url
        assert "until=" not in browser.current_url
        wait_until(lambda: browser.find_elements(By.NAME, "since"), PATIENCE_S, "the page has loaded")
        shown = browser.find_element(By.NAME, "since").get_attribute("value") or ""
        assert shown.startswith("2026-11-19T14:05")
        assert "2:05:00" in _main(browser)
    finally:
        browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


def test_a_search_goes_on_by_itself(
    browser: webdriver.Chrome, address: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "KEYS_AT_ONCE", 10)
    for _ in range(300):
        desk.push(queue="own")
    wanted = desk.push(id="needle-1", queue="own")
    open_page(browser, f"{address}/tasks?id=needle")
    wait_until(lambda: wanted in _main(browser), PATIENCE_S, "the search has found it")
    assert "cursor=" in browser.current_url or "Search further" not in _main(browser)


def _main(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.TAG_NAME, "main").text


def _text_of(browser: webdriver.Chrome, url: str) -> str:
    open_page(browser, url)
    return _main(browser)
