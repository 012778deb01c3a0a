"""django-celery-outbox, for the measurements of bench/outbox.py: `migrate`, `latency N`, `rate N CONCURRENCY`, `relay
CONCURRENCY`.

Run with BENCH_DATABASE (an SQLAlchemy URL) and BENCH_BROKER. The last line of its output is a JSON list of figures.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from typing import Any

from django.core.management import call_command
from django.db import transaction

from bench.peers.outbox_django_app import app, receipt


def relay(concurrency: int = 1) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.peers.outbox_django", "relay", str(concurrency)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def push(count: int) -> None:
    with transaction.atomic():
        for order in range(count):
            receipt.delay(order)


def latency(samples: int) -> list[float]:
    running, took = relay(), []
    with app.connection_for_read() as connection:
        client = connection.default_channel.client
        for n in range(samples + 1):
            before = client.llen("celery")
            push(1)
            began = time.perf_counter()
            while client.llen("celery") == before:
                pass
            if n:  # the first one waits for the relay to start
                took.append(time.perf_counter() - began)
            time.sleep(random.uniform(0.3, 1.3))
    running.terminate()
    running.wait(60)
    return took


def rate(count: int, concurrency: int = 1) -> list[float]:
    for _ in range(0, count, 100):
        push(100)
    with app.connection_for_read() as connection:
        client = connection.default_channel.client
        before = client.llen("celery")
        running = relay(concurrency)
        while client.llen("celery") == before:
            time.sleep(0.001)
        began, done = time.perf_counter(), client.llen("celery")
        while client.llen("celery") < before + count:
            time.sleep(0.001)
        took = time.perf_counter() - began
    running.terminate()
    running.wait(60)
    return [(before + count - done) / took]


def main(order: str, *numbers: str) -> None:
    if order == "migrate":
        call_command("migrate", verbosity=0)
        print("[]")
    elif order == "relay":
        call_command("celery_outbox_relay", publish_concurrency=int(numbers[0]))
    else:
        measure: Any = {"latency": latency, "rate": rate}[order]
        print(json.dumps(measure(*map(int, numbers))))


if __name__ == "__main__":
    main(*sys.argv[1:])
