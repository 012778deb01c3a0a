"""The Django shop: its own tests pass, and its processes together serve a page that works in a real browser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.support.example_shops import PATIENCE_S, ShopPage, copied, environment, open_shop
from tests.support.servers import wait_until

pytestmark = pytest.mark.slow


def test_its_own_tests_pass(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "manage.py", "test"]
    folder = copied("django_shop", tmp_path)
    told = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=110)
    assert "Ran 9 tests" in told.stderr, told.stderr
    assert told.returncode == 0, told.stderr


def test_its_migrations_and_settings_fit(tmp_path: Path) -> None:
    folder = copied("django_shop", tmp_path)
    for words in (["makemigrations", "--check"], ["check", "--fail-level", "WARNING"]):
        command = [sys.executable, "manage.py", *words]
        subprocess.run(command, cwd=folder, env=environment(), check=True, capture_output=True, timeout=60)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[str]:
    with open_shop("django_shop", tmp_path) as url:
        yield url


def test_the_page_shows_orders_and_their_payments(browser: webdriver.Chrome, shop: str) -> None:
    page = ShopPage(browser, shop)
    page.order()
    page.wait_for("1 tea 4.50 paid", "orders")
    page.order(card="declined")
    page.wait_for("2 tea 4.50 declined", "orders")
    page.click("Pay with another card")
    page.wait_for("2 tea 4.50 paid", "orders")
    page.click("Be somebody else")
    page.wait_for("bob", "customer")
    page.order()
    page.wait_for("3 tea 4.50 paid", "orders")
    assert page.text("orders") == "3 tea 4.50 paid"


def test_the_page_shows_the_progress_of_a_report(browser: webdriver.Chrome, shop: str) -> None:
    page = ShopPage(browser, shop)
    page.start_report()
    page.wait_for("0 orders, 0.00 in all", "result")
    *progress, (_, end) = page.seen()
    bars = [bar for bar, _ in progress]
    assert len(set(bars)) >= 2, progress  # a busy machine may miss some
    assert (bars, end) == (sorted(bars), "0 orders, 0.00 in all")


def test_a_running_report_can_be_cancelled(browser: webdriver.Chrome, shop: str) -> None:
    page = ShopPage(browser, shop)
    page.start_report()
    page.wait_for("page ", "result")
    page.click("Cancel")
    page.wait_for("The report is cancelled.", "result")


def test_the_admin_shows_why_a_payment_failed(browser: webdriver.Chrome, shop: str) -> None:
    page = ShopPage(browser, shop)
    page.order(card="declined")
    page.wait_for("declined", "orders")
    browser.find_element(By.LINK_TEXT, "Tasks and dead letters").click()
    browser.find_element(By.NAME, "username").send_keys("admin")
    browser.find_element(By.NAME, "password").send_keys("admin\n")
    wait_until(lambda: browser.find_elements(By.LINK_TEXT, "Dead letters"), PATIENCE_S, "the admin's index")
    browser.find_element(By.LINK_TEXT, "Dead letters").click()
    wait_until(lambda: "orders.tasks.pay" in browser.page_source, PATIENCE_S, "the dead letter")
    assert "Declined" in browser.page_source
