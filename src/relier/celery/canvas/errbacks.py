"""Which error callbacks a failed chord has called, so that the chord around it does not call them again.

Celery links the error callbacks of a chord to the chords in its header, too. In plain Celery the outer chord does not
fail with an inner one, and they are called once. Here it fails, and they are called once as well: the failed part that
the inner chord leaves in the outer one names those that were called.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from typing import Any

from celery.canvas import group, maybe_signature
from kombu.utils.functional import maybe_list

CALLED = "relier_called"  # of the request whose end is the part


def marks_of(body: Any) -> set[str]:
    """The error callbacks of a chord's body."""
    return {_mark(errback) for options in _options(body) for errback in _linked(options)}


def leave_out(body: Any, called: Collection[str]) -> None:
    """Take the error callbacks that were called out of a chord's body."""
    for options in _options(body):
        if called and _linked(options):
            options["link_error"] = [errback for errback in _linked(options) if _mark(errback) not in called]


def _options(body: Any) -> Iterator[dict[str, Any]]:
    """Where Celery looks for them: at the body and, of a group, at its members."""
    yield body.options
    if isinstance(body, group):
        for task in body.tasks:
            yield maybe_signature(task, app=body.app).options


def _linked(options: dict[str, Any]) -> list[Any]:
    """One may stand there without a list around it."""
    return list(maybe_list(options.get("link_error")) or ())


def _mark(errback: Any) -> str:
    text = json.dumps(errback, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
