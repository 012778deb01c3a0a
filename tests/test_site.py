"""The documentation site in a browser. `make site` builds it, and has checked its links."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.chromium import open_browser
from tests.support.servers import skip_without

ROOT = Path(__file__).parent.parent
SITE = ROOT / "build" / "site"
PATIENCE_S = 30
pytestmark = pytest.mark.slow


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write nothing to standard error."""


@pytest.fixture
def site() -> Iterator[str]:
    if not (SITE / "index.html").exists():
        skip_without("site", "the site is not built: make site")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    with open_browser(tmp_path) as opened:
        yield opened


def test_search_finds_every_how_to_page(site: str, browser: webdriver.Chrome) -> None:
    for page in sorted((ROOT / "docs" / "how-to").glob("*.md")):
        title = page.read_text().partition("\n")[0].removeprefix("# ")
        browser.get(f"{site}/index.html?q={title.replace(' ', '+')}")
        wanted = f"a.md-search-result__link[href*='how-to/{page.stem}.html']"
        WebDriverWait(browser, PATIENCE_S).until(
            lambda one, wanted=wanted: one.find_elements(By.CSS_SELECTOR, wanted), f"search does not find {page.name}"
        )


def test_pages_load_nothing_from_elsewhere(site: str, browser: webdriver.Chrome) -> None:
    for page in ("index.html", "how-to/limits.html", "reference/api.html"):
        browser.get(f"{site}/{page}")
        loaded = browser.execute_script("return performance.getEntriesByType('resource').map(one => one.name)")
        assert [url for url in loaded if not url.startswith(site)] == []


def test_the_start_page_leads_to_three_beginnings(site: str, browser: webdriver.Chrome) -> None:
    browser.get(f"{site}/index.html")
    links = browser.find_elements(By.CSS_SELECTOR, "#where-to-start ~ ul:first-of-type a")
    assert [(link.get_attribute("href") or "").rpartition("/")[2] for link in links] == [
        "tutorial.html",
        "adopt-celery.html",
        "tutorial-outbox.html",
    ]
