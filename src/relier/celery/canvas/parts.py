"""Values of a chord that are too large for one payload. The result backend keeps them, the body's message names them,
and the process that runs the body reads them there. So a chord of many members is not refused for what they return.

Values stay in the backend as long as results do (`result_expires`). A body that begins later fails.
"""

from __future__ import annotations

from typing import Any

from celery import states
from celery.app.task import Context
from celery.exceptions import ChordError, Reject

from relier.celery.adoption import adoption_of
from relier.celery.sending.collect import Collector

ASIDE = "relier:parts"


def is_too_large(app: Any, parts: list[tuple[str, bytes]]) -> bool:
    """Whether parts can never travel in one payload. Those that just fit may still be too large in a message."""
    return sum(len(raw) for _, raw in parts) > adoption_of(app).client.settings.max_payload_bytes


def put_aside(app: Any, group_id: str, values: list[Any]) -> dict[str, str]:
    """Keep the values in the backend. The answer takes their place."""
    key = f"{group_id}.parts"
    app.backend.store_result(key, values, states.SUCCESS)
    return {ASIDE: key}


def fetch(app: Any, collector: Collector, request: dict[str, Any]) -> Any:
    """The arguments of a task, with what was put aside. The task is delivered again while the backend is away."""
    args = request["args"]
    if not (args and isinstance(args[0], dict) and set(args[0]) == {ASIDE}):
        return args
    try:
        values = _kept(app, args[0][ASIDE])
    except ChordError as error:
        collector.settling = True
        app.backend.mark_as_failure(request["id"], error, request=Context(request))
        raise
    except Exception as error:
        if not is_outage(app, error):
            raise
        raise Reject(error, requeue=True) from error
    collector.aside = (values, args[0])
    request["args"] = [values, *args[1:]]
    return request["args"]


def _kept(app: Any, key: str) -> Any:
    kept = app.AsyncResult(key)
    if kept.state != states.SUCCESS:
        raise ChordError(
            f"the results of chord {key.removesuffix('.parts')} are too large for one payload, and the result backend "
            f"has lost them: it was emptied, or result_expires is shorter than its body waited; send the chord again"
        )
    return kept.result


def is_outage(app: Any, error: Exception) -> bool:
    """Whether the result backend is only away. Redis backends name the errors that say so."""
    return isinstance(error, (ConnectionError, TimeoutError, *getattr(app.backend, "connection_errors", ())))
