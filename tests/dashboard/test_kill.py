"""kill -9 with two dashboards open in a browser: both show the death, the revival and the end, without a reload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from relier.dashboard.application import local_app
from relier.settings import Settings
from tests.dashboard.serving import served
from tests.support.chromium import open_browser
from tests.support.fleet import Fleet
from tests.support.jobs.common import hold
from tests.support.servers import Server, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
PATIENCE_S = 60.0
TEXT = "return document.querySelector('main').textContent"


@pytest.fixture
def fleet(server: Server, namespace: str, tmp_path: Path) -> Iterator[Fleet]:
    opened = Fleet(Settings(redis_url=server.url, namespace=namespace, heartbeat_ttl=1.0), tmp_path / "fleet")
    yield opened
    opened.close()


class Tabs:
    """One page in two tabs, of two dashboards. A tab that reloads would lose its mark."""

    def __init__(self, browser: webdriver.Chrome, urls: tuple[str, str]) -> None:
        self._browser = browser
        self._handles = []
        for n, url in enumerate(urls):
            if n:
                browser.switch_to.new_window("tab")
            browser.get(url)
            browser.execute_script("window.mark = true; Object.defineProperty(document, 'hidden', {value: false})")
            self._handles.append(browser.current_window_handle)

    def wait_for(self, words: str) -> None:
        """Wait until both tabs show these words."""
        for handle in self._handles:
            self._browser.switch_to.window(handle)
            wait_until(lambda: words in self._browser.execute_script(TEXT), PATIENCE_S, f"{words!r} on the page")
            assert self._browser.execute_script("return window.mark"), "the page was loaded again"


def test_two_dashboards_show_a_death_a_revival_and_the_end(fleet: Fleet, tmp_path: Path) -> None:
    first = fleet.worker()
    task = hold.push("end")
    fleet.wait_diary("begin", 1)
    with (
        served(local_app(fleet.settings)) as one,
        served(local_app(fleet.settings)) as other,
        open_browser(tmp_path) as browser,
    ):
        tabs = Tabs(browser, (f"{one}/task?id={task.id}", f"{other}/task?id={task.id}"))
        tabs.wait_for("Attempt 1 started")
        first.kill_all()
        second = fleet.worker()
        tabs.wait_for("its worker was lost")
        tabs.wait_for("Attempt 2 started")
        fleet.open_gate("end")
        tabs.wait_for("It was done at")
        second.kill_all()
