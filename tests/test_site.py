"""The documentation site in a browser. `make site` builds it, and has checked its links."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from relier.version import __version__
from tests.support import ROOT
from tests.support.chromium import open_browser
from tests.support.servers import skip_without

SITE = ROOT / "build" / "site"
PATIENCE_S = 30
pytestmark = pytest.mark.slow


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write nothing to standard error."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def built() -> Path:
    """The folder of this version's site."""
    folder = SITE / __version__
    if not (folder / "index.html").exists():
        skip_without("site", "the site is not built: make site")
    return folder


@pytest.fixture
def site(built: Path) -> Iterator[str]:
    with served(SITE) as url:
        yield f"{url}/{built.name}"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    with open_browser(tmp_path) as opened:
        yield opened


@pytest.mark.timeout(900)  # dozens of searches, each of which may take as long as PATIENCE_S
def test_the_search_box_finds_every_how_to_page(site: str, browser: webdriver.Chrome) -> None:
    """The words of the title, typed into the box as a reader does, bring the page among the first five."""
    browser.get(f"{site}/index.html")
    browser.execute_script("document.querySelector('[data-md-toggle=search]').click()")
    box = WebDriverWait(browser, PATIENCE_S).until(
        lambda one: one.find_element(By.CSS_SELECTOR, "input.md-search__input")
    )
    for page in sorted((ROOT / "docs" / "how-to").glob("*.md")):
        title = page.read_text().partition("\n")[0].removeprefix("# ")
        box.clear()
        box.send_keys(re.sub(r"[^\w ]", " ", title.removeprefix("How to ")))
        wanted = f".md-search-result__item:nth-child(-n + 5) a.md-search-result__link[href*='how-to/{page.stem}.html']"
        WebDriverWait(browser, PATIENCE_S).until(
            lambda one, wanted=wanted: one.find_elements(By.CSS_SELECTOR, wanted), f"search does not find {page.name}"
        )


@pytest.mark.timeout(600)  # about a hundred pages
def test_every_link_of_every_page_leads_to_a_page_and_to_its_anchor(site: str, browser: webdriver.Chrome) -> None:
    """Follow links from the start page, as the browser shows them after its scripts ran. Nothing is unreachable."""
    left: list[str] = [f"{site}/index.html"]
    anchors: dict[str, set[str]] = {}  # page -> what its links may lead to
    wanted: dict[tuple[str, str], str] = {}  # page and anchor -> a page with a link to it
    while left:
        page = left.pop()
        browser.get(page)
        WebDriverWait(browser, PATIENCE_S).until(lambda one: one.find_elements(By.CSS_SELECTOR, "article h1"), page)
        anchors[page] = set(browser.execute_script("return [...document.querySelectorAll('[id]')].map(one => one.id)"))
        links = browser.execute_script("return [...document.querySelectorAll('a[href]')].map(one => one.href)")
        for link in links:
            target, anchor = urldefrag(link)
            if target.startswith(site):
                wanted.setdefault((target, unquote(anchor)), page)
                if target not in anchors and target not in left and target.endswith(".html"):
                    left.append(target)
    broken = {
        f"{target}#{anchor}": page
        for (target, anchor), page in wanted.items()
        if not (anchor in {"", *anchors[target]} if target in anchors else exists(target, anchor))
    }
    assert broken == {}
    files = {file.relative_to(SITE / __version__).as_posix() for file in (SITE / __version__).rglob("*.html")}
    assert files - {"404.html"} == {page.removeprefix(f"{site}/") for page in anchors}


def exists(target: str, anchor: str) -> bool:
    """Whether the server has a file that is no page, such as an image."""
    if anchor or target.endswith(".html"):
        return False
    with urllib.request.urlopen(target) as answer:
        return bool(answer.status == 200)


class FirstScreen(HTMLParser):
    """The text of a page's first paragraph, if it follows the title, before any heading, table or code."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.after_title, self.text, self.done = "", False, "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.after_title and tag in ("h2", "table", "pre", "ul"):
            self.done = True
        self.inside = tag if tag in ("h1", "p") else self.inside

    def handle_endtag(self, tag: str) -> None:
        if tag == "h1":
            self.after_title = True
        if tag == "p" and self.after_title and self.text:
            self.done = True

    def handle_data(self, data: str) -> None:
        if self.after_title and self.inside == "p" and not self.done:
            self.text += data


def test_every_page_begins_with_what_the_reader_gets(built: Path) -> None:
    """A paragraph of at least forty characters stands between the title and whatever comes first below it."""
    without = []
    for file in built.rglob("*.html"):
        reader = FirstScreen()
        article = file.read_text().partition("<article")[2].partition("</article>")[0]
        reader.feed(article)
        if file.name != "404.html" and len(reader.text.strip()) < 40:
            without.append(file.relative_to(built).as_posix())
    assert without == []


def test_llms_txt_lists_every_page_with_its_first_sentence(built: Path) -> None:
    listed = re.findall(r"^- \[(.+?)\]\((\S+?)\): (.*)$", (built / "llms.txt").read_text(), re.MULTILINE)
    pages = {file.relative_to(built).as_posix() for file in built.rglob("*.html")} - {"404.html"}
    assert {url for _, url, _ in listed} == pages
    assert [url for _, url, text in listed if len(text) < 40] == []


def test_another_version_is_two_clicks_away(built: Path, tmp_path: Path, browser: webdriver.Chrome) -> None:
    for version in (__version__, "0.9.0"):
        shutil.copytree(built, tmp_path / "site" / version)
    tools = [str(ROOT / ".venv-site" / "bin" / "python"), str(ROOT / "tools" / "site_versions.py")]
    subprocess.run([*tools, str(tmp_path / "site")], check=True, capture_output=True)
    assert [one["aliases"] for one in json.loads((tmp_path / "site" / "versions.json").read_text())] == [[], ["latest"]]
    with served(tmp_path / "site") as url:
        browser.get(url)
        WebDriverWait(browser, PATIENCE_S).until(lambda one: one.current_url == f"{url}/0.9.0/index.html")
        browser.get(f"{url}/0.9.0/how-to/limits.html")
        menu = WebDriverWait(browser, PATIENCE_S).until(lambda one: one.find_element(By.CSS_SELECTOR, ".md-version"))
        menu.find_element(By.CSS_SELECTOR, "button").click()
        other = f"//li[@class='md-version__item']/a[normalize-space()='{__version__}']"
        link = WebDriverWait(browser, PATIENCE_S).until(lambda one: one.find_element(By.XPATH, other))
        browser.execute_script("arguments[0].click()", link)
        other = f"{url}/{__version__}/"  # its start page, or the same page if the site knows its address: SITE_URL
        WebDriverWait(browser, PATIENCE_S).until(lambda one: one.current_url.startswith(other), "the other version")


def test_pages_load_nothing_from_elsewhere(site: str, browser: webdriver.Chrome) -> None:
    for page in ("index.html", "how-to/limits.html", "reference/api.html"):
        browser.get(f"{site}/{page}")
        loaded = browser.execute_script("return performance.getEntriesByType('resource').map(one => one.name)")
        assert [url for url in loaded if not url.startswith(site.rpartition("/")[0])] == []


def test_the_start_page_leads_to_three_beginnings(site: str, browser: webdriver.Chrome) -> None:
    browser.get(f"{site}/index.html")
    links = browser.find_elements(By.CSS_SELECTOR, "#where-to-start ~ ul:first-of-type a")
    assert [(link.get_attribute("href") or "").rpartition("/")[2] for link in links] == [
        "tutorial.html",
        "adopt-celery.html",
        "tutorial-outbox.html",
    ]
