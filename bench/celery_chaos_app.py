"""The app of celery_chaos.py. Each task writes one line to a diary: its kind, its argument and its id."""

from __future__ import annotations

import os
import time

from celery import Celery

from relier.celery import install

app = Celery("chaos", broker=os.environ["CHAOS_BROKER"], backend=os.environ["CHAOS_BACKEND"])
app.conf.update(broker_connection_retry_on_startup=True, worker_hijack_root_logger=True, result_expires=3600)
install(app, adopt=True)


def note(what: str, key: str, task_id: str) -> None:
    """Append one line, in one write of less than a page, so that lines of several processes never mix."""
    diary = os.open(os.environ["CHAOS_DIARY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(diary, f"{what} {key} {task_id}\n".encode())
    os.close(diary)


@app.task(bind=True)
def work(self, key, pause=0.0):
    note("work", key, self.request.id)
    time.sleep(pause)
    return key


@app.task(bind=True)
def called_back(self, key):
    note("callback", key, self.request.id)


@app.task(bind=True)
def step(self, key, number):
    note(f"step{number}", key, self.request.id)
    return key


@app.task(bind=True)
def part(self, key, number):
    note("part", f"{key}/{number}", self.request.id)
    return number


@app.task(bind=True)
def body(self, numbers, key):
    note("body", key, self.request.id)
    return sum(numbers)
