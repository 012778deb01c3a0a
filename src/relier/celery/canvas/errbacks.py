"""Remember which error callbacks a failed chord has called, so that the chord around it does not call them again.

Celery also links the error callbacks of a chord to the chords in its header. In plain Celery an outer chord does not
fail when an inner chord fails, so these callbacks run once. In the ledger the outer chord fails, too, and they still
run once: the failed part that the inner chord delivers to the outer chord names the callbacks that have run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from typing import Any

from celery.canvas import group, maybe_signature
from kombu.utils.functional import maybe_list

CALLED_ERRBACKS = "relier_called"  # a field of the request that delivers the failed part


def errback_marks(body: Any) -> set[str]:
    """Return a mark for each error callback of a chord's body."""
    return {_mark(errback) for options in _options(body) for errback in _linked(options)}


def remove_called_errbacks(body: Any, called: Collection[str]) -> None:
    """Remove the error callbacks that have run from a chord's body."""
    for options in _options(body):
        if called and _linked(options):
            options["link_error"] = [errback for errback in _linked(options) if _mark(errback) not in called]


def _options(body: Any) -> Iterator[dict[str, Any]]:
    """Yield the options in which Celery looks for error callbacks: of the body and, for a group, of its members."""
    yield body.options
    if isinstance(body, group):
        for task in body.tasks:
            yield maybe_signature(task, app=body.app).options


def _linked(options: dict[str, Any]) -> list[Any]:
    """Return the error callbacks in these options. A single callback may be given without a list."""
    return list(maybe_list(options.get("link_error")) or ())


def _mark(errback: Any) -> str:
    text = json.dumps(errback, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
