"""A Celery worker that starts while the ledger's store is unreachable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.celery.conftest import HERE, Shop
from tests.support.fleet import Member, wait_until
from tests.support.servers import Boot, Server

WORKER = ("-m", "celery", "-A", "tests.support.celery_shop_app", "worker", "-l", "INFO", "--without-mingle", "-c", "1")
WAITS = "store unreachable, waiting for it before the start: "


@pytest.fixture
def store(boot: Boot) -> Server:
    return boot()


@pytest.fixture
def shop(store: Server, namespace: str, tmp_path: Path, broker: Server) -> Iterator[Shop]:
    """A shop whose ledger has its own store."""
    made = Shop(store, namespace, tmp_path / "shop", broker)
    try:
        yield made
    finally:
        made.fleet.close()


def start(shop: Shop) -> Member:
    return shop.fleet.python(*WORKER, cwd=HERE, **shop.env, RELIER_REDIS_DEADLINE="0.5")


def test_a_celery_worker_waits_for_the_store(shop: Shop, store: Server) -> None:
    store.stop()
    worker = start(shop)
    said = worker.wait_said(WAITS, 1, 60)
    assert " ready." not in said
    store.start()
    worker.wait_said(" ready.", 1, 60)
    shop.run("sell.delay('tea')")
    wait_until(lambda: shop.printed() == ["sold tea"], 20, "the task")
    assert worker.terminate() == 0


def test_a_celery_worker_that_waits_can_be_stopped(shop: Shop, store: Server) -> None:
    store.stop()
    worker = start(shop)
    worker.wait_said(WAITS, 1, 60)
    assert worker.terminate(20) == 0
    assert "Traceback" not in worker.said()
