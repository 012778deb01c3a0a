"""The FastAPI shop: its own tests pass, and its processes together serve a page that works in a real browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from tests.support import PYTHONPATH
from tests.support.example_shops import EXAMPLES, ShopPage, environment, open_shop
from tests.support.servers import wait_until

pytestmark = pytest.mark.slow
SHOP = EXAMPLES / "fastapi_shop"


def test_its_own_tests_pass(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(SHOP / "tests")]
    env = environment(PYTHONPATH=f"{SHOP}{os.pathsep}{PYTHONPATH}")
    told = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=110)
    assert "5 passed" in told.stdout, told.stdout + told.stderr


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[str]:
    with open_shop("fastapi_shop", tmp_path) as url:
        yield url


def ask(url: str, body: Any = None, *, method: str = "", raw: bool = False) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Cookie": "customer=ann", "Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method or ("POST" if data else "GET"))
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read() if raw else json.load(answer)


def test_an_order_is_paid_and_a_report_is_made(shop: str) -> None:
    order = ask(f"{shop}/orders", {"item": "tea", "cents": 450})
    wait_until(lambda: ask(f"{shop}/orders")[0]["paid"], 30, "the order is paid")
    assert ask(f"{shop}/orders")[0]["id"] == order["order"]
    report = ask(f"{shop}/reports", method="POST")
    told = ask(f"{shop}/tasks/{report['task']}/events", raw=True).decode()
    assert '"progress":{"done":' in told
    assert told.rstrip().splitlines()[-2] == "event: end"
    assert ask(f"{shop}/tasks/{report['task']}/result")["result"] == {"orders": 1, "cents": 450}


def test_the_page_shows_orders_and_their_payments(browser: webdriver.Chrome, shop: str) -> None:
    page = ShopPage(browser, shop)
    page.order()
    page.wait_for("Order 1 is paid.", "message")
    page.wait_for("1 tea 4.50 paid", "orders")
    page.order(card="declined")
    page.wait_for("Order 2 was not paid: Declined.", "message")
    page.click("Be somebody else")
    page.wait_for("bob", "customer")
    page.order()
    page.wait_for("3 tea 4.50 paid", "orders")
    assert page.text("orders") == "3 tea 4.50 paid"


def test_the_page_follows_a_report_by_server_sent_events(browser: webdriver.Chrome, shop: str) -> None:
    page = ShopPage(browser, shop)
    page.start_report()
    page.wait_for("0 orders, 0.00 in all", "result")
    *progress, (_, end) = page.seen()
    bars = [bar for bar, _ in progress]
    assert len(set(bars)) >= 2, progress  # a busy machine may miss some
    assert (bars, end) == (sorted(bars), "0 orders, 0.00 in all")
    assert all(words == f"page {round(bar * 20)}" for bar, words in progress)
    (events,) = page.requests("/events")  # one stream brought it all, and no status was polled
    assert page.requests("/tasks/") == [events, events.replace("/events", "/result")]


def test_a_page_that_is_loaded_again_follows_the_report_that_runs(browser: webdriver.Chrome, shop: str) -> None:
    page = ShopPage(browser, shop)
    page.start_report()
    page.wait_for("page ", "result")
    browser.refresh()
    page.wait_for("0 orders, 0.00 in all", "result")
