"""An adopted app for tests. Each of its tasks writes a line."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

from celery import Celery, current_task
from kombu import Queue
from kombu.common import Broadcast

from relier import Admit, rl_task
from relier.celery import install

app = Celery("shop", broker=os.environ["SHOP_BROKER"], backend=os.environ.get("SHOP_BACKEND"))
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
app.conf.task_send_sent_event = bool(os.environ.get("SHOP_SENT_EVENTS"))
if os.environ.get("SHOP_BROADCAST"):
    app.conf.task_queues = (Queue("celery"), Broadcast("everyone"))
if not os.environ.get("SHOP_PLAIN"):
    install(app, adopt=True)
if os.environ.get("SHOP_SENTRY"):
    from sentry_sdk.integrations.celery import CeleryIntegration

    from tests.support.sentry_file import report_to

    report_to(Path(os.environ["SHOP_SENTRY"]), [CeleryIntegration()])


def write(text: str) -> None:
    file = os.open(Path(os.environ["SHOP_FOLDER"]) / "printed", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{text}\n".encode())
    os.close(file)


@app.task
def sell(what):
    write(f"sold {what}")


@app.task
def wait_for_customer():
    write("waits")
    while not (Path(os.environ["SHOP_FOLDER"]) / "gate-customer").exists():
        threading.Event().wait(0.01)
    write("served")


@app.task
def spill(what):
    raise LookupError(what)


@app.task
def add_up(numbers):
    write(f"added up {numbers}")


@app.task
def price(number):
    write(f"priced {number}")
    return number


@app.task(bind=True)
def ask_twice(self):
    if self.request.retries == 0:
        self.retry(countdown=0, throw=False)
    write(f"asked {self.request.retries}")
    return self.request.retries


@app.task(rate_limit="1/h")
def appraise(number):
    write(f"appraised {number}")


@app.task(ignore_result=False, acks_late=True, reject_on_worker_lost=True)
def weigh(what):
    write(f"weighed {what}")


@app.task(relier={"max_resurrections": 1})
def carry_glass(what):
    write(f"carried {what}")


@app.task(bind=True, relier={"admission": Admit("ration:{what}", limit=2, window=3600)})
def ration(self, what, amount=1):
    write(f"rationed {what}")


@app.task
def complain(task_id):
    write(f"complained of {task_id}")


@app.task(bind=True)
async def order(self, what):
    await asyncio.sleep(0.01)
    write(f"ordered {what} as {self.request.id}")


@app.task(bind=True)
def pack(self, by):
    write(f"packed for {self.request.parent_id} of {self.request.root_id} by {by}")


@app.task
async def order_packed():
    await asyncio.gather(*map(order_pack, "ab"))


async def order_pack(box):
    await asyncio.sleep(0.01)
    pack.delay(f"{current_task.name} {box}")


@app.task(bind=True, autoretry_for=(ValueError,), default_retry_delay=0.01, max_retries=2)
async def order_in_vain(self):
    await asyncio.sleep(0.01)
    write(f"try {self.request.retries}")
    raise ValueError("sold out")


app.conf.beat_schedule = {"sell": {"task": "tests.support.celery_shop_app.sell", "schedule": 0.2, "args": ("by beat",)}}


@rl_task(queue="later")
def count_stock() -> None: ...
