"""From SIGTERM to its end, a relay takes no longer than --shutdown-timeout, whatever hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from relier import Client
from relier.celery.outbox import REDIS_CHUNK_SIZE, send_through
from relier.outbox.row import NewRow
from relier.settings import Settings, environment
from tests.outbox.test_celery_frozen import running_rabbit
from tests.support.databases import Database
from tests.support.outbox_shop import Shop
from tests.support.servers import Boot, wait_until

SHUTDOWN_S = 2.0
LEAVING_S = 1.0
SLOW_MACHINE_S = 2.0
pytestmark = pytest.mark.slow

APP = """
from celery import Celery

app = Celery("frozen", broker={url!r})
"""


@contextmanager
def relay_process(shop: Shop, *options: str, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "relier.cli", "outbox", "relay", "--shutdown-timeout", str(SHUTDOWN_S), *options]
    command += ["--database", shop.engine.url.render_as_string(hide_password=False), "--idle-time", "0.1"]
    environ = {**os.environ, **environment(shop.client.settings)}
    with subprocess.Popen(command, env=environ, cwd=cwd, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def end(process: subprocess.Popen[str]) -> str:
    """Ask the process to end, and check that it ends in time. Return its log."""
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=90)[1]
    took = time.monotonic() - asked
    assert took < SHUTDOWN_S + LEAVING_S + SLOW_MACHINE_S, f"it took {took:.1f} s: {told}"
    assert "Traceback" not in told
    return told


class Kept:
    """An outbox whose transaction is always open."""

    def __init__(self) -> None:
        self.rows: list[NewRow] = []

    def current(self) -> Any:
        return self

    def write(self, _: Any, rows: Any) -> None:
        self.rows += rows


def celery_row(task_id: str) -> NewRow:
    """Return a message of a Celery app, as a row."""
    app, kept = Celery("frozen", broker="memory://", set_as_current=False), Kept()
    send_through(app, kept).send_task("shop.plain", task_id=task_id)
    return kept.rows[-1]


@pytest.fixture
def sqlite_shop(sqlite: Database, client: Client) -> Iterator[Shop]:
    with Shop(sqlite.url, client) as made:
        yield made


@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_frozen_broker_does_not_hold_up_the_end(sqlite_shop: Shop, boot: Boot, tmp_path: Path, threads: str) -> None:
    broker = boot()
    (tmp_path / "frozen_app.py").write_text(APP.format(url=broker.tcp_url))
    sign = tmp_path / "alive"
    options = ["--celery-app", "frozen_app:app", "--no-ledger", "--publish-concurrency", threads]
    options += ["--liveness-file", str(sign), "--batch-size", "400"]
    with relay_process(sqlite_shop, *options, cwd=tmp_path) as process:
        sqlite_shop.write(celery_row("first"))
        wait_until(lambda: sqlite_shop.count() == 0, 30)
        broker.freeze()
        try:
            sqlite_shop.write(*(celery_row(f"row-{n}") for n in range(4 * REDIS_CHUNK_SIZE)))
            wait_until(lambda: sqlite_shop.rows()[0].leased_by, 30)
            sign.unlink()
            wait_until(sign.exists, 30)  # it publishes, and checks for signals meanwhile
            told = end(process)
        finally:
            broker.thaw()
    assert process.returncode == 0, told
    assert "publishes did not end in time" in told
    held = sum(row.leased_by != "" for row in sqlite_shop.rows())
    assert 1 <= held <= int(threads) * REDIS_CHUNK_SIZE  # rows that were not begun are released


@pytest.mark.engines
@pytest.mark.xdist_group("rabbitmq")
def test_a_frozen_rabbitmq_does_not_hold_up_the_end(sqlite_shop: Shop, tmp_path: Path) -> None:
    with running_rabbit() as node:
        if not node.own:
            pytest.skip("the node is not ours to freeze")
        assert node._process is not None
        (tmp_path / "frozen_app.py").write_text(APP.format(url=node.url))
        with relay_process(sqlite_shop, "--celery-app", "frozen_app:app", "--no-ledger", cwd=tmp_path) as process:
            sqlite_shop.write(celery_row("first"))
            wait_until(lambda: sqlite_shop.count() == 0, 30)
            os.killpg(node._process.pid, signal.SIGSTOP)
            try:
                sqlite_shop.write(celery_row("second"))
                wait_until(lambda: sqlite_shop.rows()[0].leased_by, 30)
                told = end(process)
            finally:
                os.killpg(node._process.pid, signal.SIGCONT)
    assert process.returncode == 0, told


def test_a_frozen_ledger_does_not_hold_up_the_end(sqlite: Database, boot: Boot, settings: Settings) -> None:
    server = boot()
    client = Client(settings.replace(redis_url=server.url))
    with Shop(sqlite.url, client) as shop, relay_process(shop) as process:
        shop.place(1)
        wait_until(lambda: shop.count() == 0, 30)
        server.freeze()
        try:
            shop.place(2)
            wait_until(lambda: shop.rows()[0].leased_by, 30)
            told = end(process)
        finally:
            server.thaw()
    client.close()
    assert process.returncode == 0, told


def test_a_frozen_database_does_not_hold_up_the_end(pg_shop: Shop, postgres: Database, tmp_path: Path) -> None:
    pg_shop.client.open()
    sign = tmp_path / "alive"
    with relay_process(pg_shop, "--liveness-file", str(sign)) as process:
        pg_shop.place(1)
        wait_until(lambda: pg_shop.count() == 0, 30)
        pg_shop.engine.dispose()
        found = f"SELECT pid FROM pg_stat_activity WHERE datname = '{postgres.name}' AND pid <> pg_backend_pid()"
        pids = [pid for (pid,) in postgres.server.execute(found)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: time.time() - sign.stat().st_mtime > 1, 30)  # it waits for an answer
            told = end(process)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
    assert process.returncode == 1, told
    assert "relay did not end in time" in told
    assert "timeout=2s" in told
