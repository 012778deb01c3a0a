"""Take pictures of every page, light and dark, on a desktop and on a phone: `make screenshots`."""

from __future__ import annotations

import base64
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selenium import webdriver

from relier.dashboard.application import local_app
from relier.ledger.ledger import load_scripts
from relier.settings import Settings
from relier.store import SyncStore
from tests.dashboard.serving import served
from tests.dashboard.shop_data import fill
from tests.support import ROOT
from tests.support.chromium import open_browser
from tests.support.cli_desk import Desk
from tests.support.servers import wait_until

IMAGES = ROOT / "docs" / "images"
SCREENS = {"desktop": (1280, 860, False), "phone": (390, 844, True)}
THEMES = ("light", "dark")
# In one step: a live page may replace the button between finding and pressing it.
PRESS = """
window.confirm = () => true;
document.evaluate(arguments[0], document, null, XPathResult.FIRST_ORDERED_NODE_TYPE).singleNodeValue.click();
"""


def paths_of(ids: dict[str, str]) -> dict[str, str]:
    """Return name of a picture -> path of the page."""
    return {
        "overview": "/",
        "figures": "/#speed",
        "queues": "/queues",
        "tasks": "/tasks?state=queued&queue=mail",
        "task": f"/task?id={ids['dead']}",
        "running-task": f"/task?id={ids['running']}",
        "dead-letters": "/dead",
        "schedules": "/schedules",
        "schedule": "/schedule?name=nightly-report",
        "batches": "/batches",
        "batch": f"/batch?id={ids['batch']}",
        "workflow": f"/batch?id={ids['workflow']}",
        "nodes": "/nodes",
        "limits": "/limits",
        "outbox": "/outbox",
        "events": "/events",
        "actions": "/actions",
    }


def set_screen(browser: webdriver.Chrome, screen: str, theme: str) -> None:
    """Make the browser a desktop or a phone, with a preference for light or dark."""
    width, height, is_phone = SCREENS[screen]
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def picture(browser: webdriver.Chrome, kind: str = "webp") -> bytes:
    options: dict[str, Any] = {"format": kind} | ({"quality": 82} if kind == "webp" else {})
    return base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", options)["data"])


def pictures(browser: webdriver.Chrome, address: str, ids: dict[str, str], kind: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every picture."""
    for screen in SCREENS:
        for theme in THEMES:
            set_screen(browser, screen, theme)
            for name, path in paths_of(ids).items():
                browser.get(f"{address}{path}")
                wait_until(lambda: "live" in browser.find_element("id", "live").text, 30, f"{path} is open")
                yield f"dashboard-{name}-{screen}-{theme}.{kind}", picture(browser, kind)


def main(folder: Path, kind: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        settings = Settings(redis_url=f"embedded://{place}/store", namespace="shop")
        with SyncStore(settings, load_scripts()) as store:
            desk = Desk(store, settings)
            ids = fill(desk)
            with served(local_app(settings)) as address, open_browser(Path(place)) as browser:
                press_some(browser, address)
                for name, content in pictures(browser, address, ids, kind):
                    (folder / name).write_bytes(content)
                    print(name, len(content))


def press_some(browser: webdriver.Chrome, address: str) -> None:
    """Press a button, so that the page of actions has something to show."""
    for path, label in (("/queues?q=exports", "Pause"), ("/queues?q=exports", "Resume")):
        browser.get(f"{address}{path}")
        browser.execute_script(PRESS, f"//main//button[normalize-space()='{label}']")
        wait_until(lambda: "said=" in browser.current_url, 30, f"{label} was done")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES, sys.argv[2] if len(sys.argv) > 2 else "webp")
