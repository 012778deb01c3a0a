"""A Celery worker serves its health and metrics on the metrics port, and its pool processes do not keep the port."""

from __future__ import annotations

import signal

from tests.celery.conftest import Shop
from tests.monitoring.test_metrics import has, value
from tests.support.fleet import wait_until
from tests.support.probing import ask, reasons, wait_for
from tests.support.servers import free_port


def test_a_celery_worker_reports_its_health(shop: Shop) -> None:
    port = free_port()
    shop.env["RELIER_METRICS_PORT"] = str(port)
    worker = shop.worker()
    wait_for(port, "/readyz")
    assert ask(port, "/livez") == (200, {"probe": "livez", "ok": True, "role": "worker", "reasons": []})
    shop.run("sell.delay('a lamp')")
    name = "tests.support.celery_shop_app.sell"
    page = wait_until(has(port, "rl_tasks_total", 1, task=name, outcome="succeeded"), 30)
    assert (
        value(page, "rl_task_run_seconds_count", task=name)
        == value(page, "rl_task_queue_seconds_count", task=name)
        == 1
    )
    assert value(page, "rl_worker_slots") == 2
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert reasons(port) is None
