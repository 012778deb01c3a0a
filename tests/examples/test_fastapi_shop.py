"""The FastAPI shop: its own tests pass, and all of it together serves a page that works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import PYTHONPATH, ROOT
from tests.support.servers import free_port, wait_until

SHOP = ROOT / "examples" / "fastapi_shop"


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RELIER_")}
    return kept | {"PYTHONPATH": f"{SHOP}{os.pathsep}{PYTHONPATH}", **more}


@pytest.mark.slow
def test_its_own_tests_pass(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(SHOP / "tests")]
    told = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=110)
    assert "5 passed" in told.stdout, told.stdout + told.stderr


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[str]:
    port = str(free_port())
    env = environment(PORT=port, SHOP_FOLDER=str(tmp_path))
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen([sys.executable, str(SHOP / "run.py")], env=env, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(url) or running.poll() is not None, 60, "the shop is open")
        assert running.poll() is None, (tmp_path / "log").read_text()
        yield url
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(60)


def answers(url: str) -> bool:
    try:
        return ask(url, raw=True).startswith(b"<!doctype html>")
    except OSError:
        return False


def ask(url: str, body: Any = None, *, method: str = "", raw: bool = False) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Cookie": "customer=ann", "Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method or ("POST" if data else "GET"))
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read() if raw else json.load(answer)


@pytest.mark.slow
def test_an_order_is_paid_and_a_report_is_made(shop: str) -> None:
    order = ask(f"{shop}/orders", {"item": "tea", "cents": 450})
    wait_until(lambda: ask(f"{shop}/orders")[0]["paid"], 30, "the order is paid")
    assert ask(f"{shop}/orders")[0]["id"] == order["order"]
    report = ask(f"{shop}/reports", method="POST")
    told = ask(f"{shop}/tasks/{report['task']}/events", raw=True).decode()
    assert '"progress":{"done":' in told
    assert told.rstrip().splitlines()[-2] == "event: end"
    assert ask(f"{shop}/tasks/{report['task']}/result")["result"] == {"orders": 1, "cents": 450}
