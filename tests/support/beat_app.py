"""An adopted app with a beat_schedule for tests. BEAT_ENTRIES says which entries this process has."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

from celery import Celery
from celery.schedules import crontab

from relier.celery import install

app = Celery("shop", broker=os.environ["SHOP_BROKER"])
app.conf.update(task_ignore_result=True, beat_max_loop_interval=1)
install(app, adopt=True)

ENTRIES: dict[str, dict[str, Any]] = {
    "every second": {"task": "beat.count", "schedule": timedelta(seconds=1), "args": ["second"]},
    "every two": {"task": "beat.count", "schedule": 2.0, "args": ["two"], "options": {"queue": "twos", "expires": 600}},
    "every minute": {"task": "beat.count", "schedule": crontab(), "args": ["minute"]},
    "edited": {"task": "beat.count", "schedule": 1.0, "args": [os.environ.get("BEAT_ARGUMENT", "first")]},
}
app.conf.beat_schedule = {name: ENTRIES[name] for name in json.loads(os.environ["BEAT_ENTRIES"])}


@app.task(name="beat.count")
def count(what: str) -> str:
    return what
