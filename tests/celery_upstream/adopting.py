"""A pytest plugin that calls `install(app, adopt=True)` for every app that Celery's own tests make."""

from __future__ import annotations

from typing import Any

import celery

from relier.celery import install

_make = celery.Celery.__init__


def make_adopted(self: Any, *args: Any, **kwargs: Any) -> None:
    _make(self, *args, **kwargs)
    install(self, adopt=True)


celery.Celery.__init__ = make_adopted
