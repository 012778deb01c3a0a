"""A real browser for tests of pages: Debian's Chromium without a window, driven by Selenium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.support.servers import skip_without

BINARIES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",  # CI runs as root, which Chromium's sandbox refuses
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def require_chromium() -> tuple[str, str]:
    """Return the browser and its driver, or skip the test. In CI both must exist, unless they could not be
    installed."""
    browser = next((found for name in BINARIES if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        skip_without("chromium", "no chromium with a chromedriver here: apt-get install chromium chromium-driver")
        raise AssertionError("unreachable")
    return browser, driver


@contextmanager
def open_browser(folder: Path) -> Iterator[webdriver.Chrome]:
    """Start a browser with a new profile in this folder."""
    browser, driver = require_chromium()
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for option in (*OPTIONS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(option)
    opened = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield opened
    finally:
        opened.quit()
