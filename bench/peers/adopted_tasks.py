"""Celery's own tasks, adopted: celery_tasks.py with one more line."""

from __future__ import annotations

from bench.peers.celery_tasks import TASKS, app, many, one, opened
from relier.celery import install

install(app, adopt=True)

__all__ = ["TASKS", "app", "many", "one", "opened"]
