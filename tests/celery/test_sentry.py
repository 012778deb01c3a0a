"""Sentry's Celery integration sees adopted tasks in the same way as other tasks."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from tests.celery.conftest import Shop

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


@pytest.mark.skipif(
    find_spec("sentry_sdk") is None, reason="sentry-sdk is not installed"
)  # importing it imports eventlet
def test_a_push_has_the_same_spans_as_in_plain_celery(shop: Shop) -> None:
    plain, adopted = shop.plain(TRACED), shop.run(TRACED)
    spans = json.loads(adopted.splitlines()[-1])
    assert spans == json.loads(plain.splitlines()[-1])
    assert ["queue.publish", "tests.support.celery_shop_app.sell", "tea-1", "celery"] in spans
