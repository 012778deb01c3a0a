"""eventlet replaces the modules that wait for sockets. Workers and producers that it has patched must still work."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.celery.conftest import HERE, Shop

# Found, not imported: once imported, it warns about every fork of the process.
pytestmark = pytest.mark.skipif(find_spec("eventlet") is None, reason="eventlet is not installed")

PATCHED = "import eventlet; eventlet.monkey_patch()\nfrom tests.support.celery_shop_app import *\n"
IDLES = f"""{PATCHED}
from relier.store import sync_wire
sync_wire.TRUSTED_IDLE = 0.0  # so that each connection is looked at before it is used again
print(*[sell.delay(number).id for number in range(3)])
"""


def test_a_patched_producer_pushes(shop: Shop) -> None:
    producer = shop.fleet.python("-c", IDLES, cwd=HERE, **shop.env)
    assert producer.wait(60) == 0, producer.said()
    ids = producer.said().splitlines()[-1].split()
    assert len([shop.fleet.get(task_id) for task_id in ids]) == 3


def test_a_worker_runs_tasks(shop: Shop) -> None:
    worker = shop.worker("-P", "eventlet", "-c", "10")
    ids = shop.run("print(*[task.delay(number).id for number in range(10) for task in (sell, order)])").split()
    shop.fleet.wait_done(ids, 30)
    assert len(shop.printed()) == 20  # each once
    assert worker.terminate() == 0
