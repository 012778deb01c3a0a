"""An adopted app for tests: each task writes a line."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from celery import Celery

from relier import rl_task
from relier.celery import install

app = Celery("shop", broker=os.environ["SHOP_BROKER"])
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
if not os.environ.get("SHOP_PLAIN"):
    install(app, adopt=True)


def write(text: str) -> None:
    file = os.open(Path(os.environ["SHOP_FOLDER"]) / "printed", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{text}\n".encode())
    os.close(file)


@app.task
def sell(what):
    write(f"sold {what}")


@app.task(bind=True)
async def order(self, what):
    await asyncio.sleep(0.01)
    write(f"ordered {what} as {self.request.id}")


@app.task(bind=True, autoretry_for=(ValueError,), default_retry_delay=0.01, max_retries=2)
async def order_in_vain(self):
    await asyncio.sleep(0.01)
    write(f"try {self.request.retries}")
    raise ValueError("sold out")


@rl_task(queue="later")
def count_stock() -> None: ...
