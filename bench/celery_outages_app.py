"""The app of celery_outages.py: its tasks note when they begin, and may wait for a gate."""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

from relier.celery import install

app = Celery("outages", broker=os.environ["OUTAGES_BROKER"])
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
if "OUTAGES_MASTER" in os.environ:
    app.conf.broker_transport_options = {"master_name": os.environ["OUTAGES_MASTER"]}
install(app, adopt=True)
FOLDER = Path(os.environ["OUTAGES_FOLDER"])


def note(what: str, key: str) -> None:
    diary = os.open(FOLDER / "diary", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(diary, f"{what} {key} {os.getpid()} {time.monotonic():.6f}\n".encode())
    os.close(diary)


@app.task
def quick(key):
    note("quick", key)


@app.task
def hold(key, gate):
    note("hold", key)
    while not (FOLDER / gate).exists():
        time.sleep(0.02)


def push_for(seconds: float) -> None:
    """Push for this long, and survive whatever happens to the store."""
    until, i = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        try:
            quick.delay(str(i))
            i += 1
        except Exception as error:  # noqa: BLE001 - refused: it was told, and tries the same again
            print("refused:", error, flush=True)
        time.sleep(0.01)
