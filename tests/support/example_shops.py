"""The shops in `examples/`, each as its Procfile starts it, in a copy of its folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.by import By

from tests.support import PYTHONPATH, ROOT
from tests.support.servers import free_port, wait_until

EXAMPLES = ROOT / "examples"
PATIENCE_S = 60.0
RECORD = """
window.seen = [];
const note = () => seen.push([document.getElementById("bar").value, document.getElementById("result").textContent]);
new MutationObserver(note).observe(document.getElementById("result"), {childList: true});
"""


def copied(name: str, folder: Path) -> Path:
    """Return a copy of an example, without its stored data."""
    stored = shutil.ignore_patterns(".relier", "*.db*", "bank.json", "__pycache__")
    return Path(shutil.copytree(EXAMPLES / name, folder / name, ignore=stored))


def environment(**more: str) -> dict[str, str]:
    """Return an environment without any settings of Relier and Django."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RELIER_", "DJANGO_"))}
    return kept | {"PYTHONPATH": PYTHONPATH, **more}


@contextmanager
def open_shop(name: str, folder: Path) -> Iterator[str]:
    """Start an example, and return its address once it says that it is open."""
    shop, log, port = copied(name, folder), folder / "log", free_port()
    command = [sys.executable, str(EXAMPLES / "start.py"), str(shop)]
    with log.open("w") as out:
        running = subprocess.Popen(command, env=environment(PORT=str(port)), stdout=out, stderr=out)
    try:
        opens = lambda: "The shop is open" in log.read_text() or running.poll() is not None  # noqa: E731
        wait_until(opens, PATIENCE_S, "the shop is open")
        assert running.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}"
        assert running.poll() is None, log.read_text()
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(PATIENCE_S)
    assert running.returncode == 0, log.read_text()


class ShopPage:
    """The page of a shop in a browser. Both shops have the same elements."""

    def __init__(self, browser: webdriver.Chrome, url: str) -> None:
        self.browser = browser
        browser.get(url)

    def text(self, element: str) -> str:
        """Return the words of an element. One script reads them, because the page may replace the element meanwhile."""
        script = "return document.getElementById(arguments[0])?.innerText ?? ''"
        return " ".join(self.browser.execute_script(script, element).split())  # type: ignore[no-untyped-call]

    def order(self, card: str = "valid") -> None:
        self.browser.find_element(By.CSS_SELECTOR, "select[name=card]").send_keys(card)
        self.browser.find_element(By.CSS_SELECTOR, "#order button:last-child").click()

    def click(self, words: str) -> None:
        wait_until(lambda: self._has_clicked(words), PATIENCE_S, f"a button {words!r}")

    def _has_clicked(self, words: str) -> bool:
        try:
            self.browser.find_element(By.XPATH, f"//button[text()='{words}']").click()
        except (NoSuchElementException, StaleElementReferenceException):
            return False
        return True

    def wait_for(self, words: str, element: str) -> None:
        wait_until(lambda: words in self.text(element), PATIENCE_S, f"{words!r} on the page")

    def start_report(self) -> None:
        """Start a report, and record what the page shows of it from now on."""
        self.browser.execute_script(RECORD)  # type: ignore[no-untyped-call]
        self.click("Make a report")

    def seen(self) -> list[tuple[float, str]]:
        """Return how far the bar was and what the page said, at each change."""
        found = self.browser.execute_script("return seen")  # type: ignore[no-untyped-call]
        return [(bar, words) for bar, words in found if words]

    def requests(self, path: str) -> list[str]:
        """Return the addresses that the page has asked for and that contain this path."""
        script = "return performance.getEntriesByType('resource').map(entry => entry.name)"
        asked = self.browser.execute_script(script)  # type: ignore[no-untyped-call]
        return [address for address in asked if path in address]
