"""Sentry's Celery integration sees adopted tasks in the same way as other tasks. Importing Sentry imports eventlet, so
only processes of their own do."""

from __future__ import annotations

import json
import signal
from importlib.util import find_spec
from typing import Any

import pytest

from tests.celery.conftest import Shop
from tests.support.fleet import wait_until

TRACED = """
import json
import sentry_sdk
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.transport import Transport

seen = []

class Kept(Transport):
    def capture_envelope(self, envelope):
        seen.extend(item.payload.json for item in envelope.items if item.type == "transaction")

sentry_sdk.init(
    dsn="http://key@127.0.0.1:9/1", transport=Kept, traces_sample_rate=1.0, integrations=[CeleryIntegration()]
)
with sentry_sdk.start_transaction(name="sale"):
    sell.apply_async(("tea",), task_id="tea-1")
spans = [span for transaction in seen for span in transaction["spans"] if span["op"].startswith("queue")]
print(json.dumps([[span["op"], span["description"], span["data"].get("messaging.message.id"),
                   span["data"].get("messaging.destination.name")] for span in spans]))
"""


pytestmark = pytest.mark.skipif(find_spec("sentry_sdk") is None, reason="sentry-sdk is not installed")


def failures(shop: Shop, **env: str) -> list[tuple[Any, ...]]:
    """Let a task fail in a worker that uses Sentry. Return what Sentry reported."""
    file = shop.fleet.folder / f"sentry{len(env)}"
    before, shop.env = shop.env, shop.env | env | {"SHOP_SENTRY": str(file)}
    worker = shop.worker()
    shop.run("spill.apply_async(('tea',), task_id='tea-1')")
    lines = wait_until(lambda: file.exists() and file.read_text().splitlines(), 30)
    worker.signal(signal.SIGTERM)
    worker.wait()
    shop.env = before
    return [about(json.loads(line)) for line in lines]


def about(event: dict[str, Any]) -> tuple[Any, ...]:
    raised, job = event["exception"]["values"][-1], event["extra"]["celery-job"]
    where = raised["stacktrace"]["frames"][-1]["function"]
    return event["tags"]["celery_task_id"], job["task_name"], raised["type"], raised["value"], where


def test_a_failure_is_the_same_event_as_in_plain_celery(shop: Shop) -> None:
    adopted = failures(shop)
    assert adopted == failures(shop, SHOP_PLAIN="1")
    assert adopted == [("tea-1", "tests.support.celery_shop_app.spill", "LookupError", "tea", "spill")]


def test_a_push_has_the_same_spans_as_in_plain_celery(shop: Shop) -> None:
    plain, adopted = shop.plain(TRACED), shop.run(TRACED)
    spans = json.loads(adopted.splitlines()[-1])
    assert spans == json.loads(plain.splitlines()[-1])
    assert ["queue.publish", "tests.support.celery_shop_app.sell", "tea-1", "celery"] in spans
