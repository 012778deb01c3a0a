"""The Celery app of our own relay, for the direct comparison in bench/outbox.py: its rows hold Celery's messages."""

from __future__ import annotations

import os

from celery import Celery

app = Celery("bench", broker=os.environ["BENCH_BROKER"], task_ignore_result=True)


@app.task(name="bench.receipt")
def receipt(order: int) -> None:
    """Never run: only its message counts."""
