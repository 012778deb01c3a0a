"""Relier's own tasks in a Celery app."""

from __future__ import annotations

import os

from celery import Celery

from bench.peers import URL_VARIABLE
from bench.peers.relier_native_tasks import TASKS, many, one, opened
from relier.celery import install

app = install(Celery("bench", broker=os.environ[URL_VARIABLE]))
app.conf.broker_connection_retry_on_startup = True

__all__ = ["TASKS", "app", "many", "one", "opened"]
