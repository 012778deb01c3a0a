"""Celery's own tasks, adopted: one line more than celery_tasks.py."""

from __future__ import annotations

from bench.peers.celery_tasks import TASKS, app, many, one, opened
from relier.celery import install

install(app, adopt=True)

__all__ = ["TASKS", "app", "many", "one", "opened"]
