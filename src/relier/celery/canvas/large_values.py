"""Store the values of a chord in the result backend when they are too large for one payload.

The body's message holds a reference, and the process that runs the body reads the values from the backend. So a chord
of many members does not fail because its results are too large in total.

The values stay in the backend as long as results do (`result_expires`). A body that starts later fails.
"""

from __future__ import annotations

from typing import Any

from celery import states
from celery.app.task import Context
from celery.exceptions import ChordError, Reject

from relier.celery.adoption import adoption_of
from relier.celery.sending.collect import Collector

STORED_VALUES = "relier:parts"


def is_too_large(app: Any, parts: list[tuple[str, bytes]]) -> bool:
    """Return whether the parts are certainly too large for one payload.

    Parts that just fit into a payload may still be too large once they are in a message.
    """
    return sum(len(raw) for _, raw in parts) > adoption_of(app).client.settings.max_payload_bytes


def store_values(app: Any, group_id: str, values: list[Any]) -> dict[str, str]:
    """Store the values in the backend. Return the reference that takes their place."""
    key = f"{group_id}.parts"
    app.backend.store_result(key, values, states.SUCCESS)
    return {STORED_VALUES: key}


def fetch_stored_values(app: Any, collector: Collector, request: dict[str, Any]) -> Any:
    """Return the arguments of a task, and replace a reference to stored values with the values.

    If the backend is unreachable, the task is put back and runs again later.
    """
    args = request["args"]
    if not (args and isinstance(args[0], dict) and set(args[0]) == {STORED_VALUES}):
        return args
    try:
        values = _stored_values(app, args[0][STORED_VALUES])
    except ChordError as error:
        collector.settling = True
        app.backend.mark_as_failure(request["id"], error, request=Context(request))
        raise
    except Exception as error:
        if not is_outage(app, error):
            raise
        raise Reject(error, requeue=True) from error
    collector.stored_argument = (values, args[0])
    request["args"] = [values, *args[1:]]
    return request["args"]


def _stored_values(app: Any, key: str) -> Any:
    stored = app.AsyncResult(key)
    if stored.state != states.SUCCESS:
        raise ChordError(
            f"the body of chord {key.removesuffix('.parts')} cannot run: its arguments were too large for one payload, "
            f"and the result backend has lost them; it was emptied, or result_expires is shorter than the body waited; "
            f"send the chord again"
        )
    return stored.result


def is_outage(app: Any, error: Exception) -> bool:
    """Return whether the error means that the result backend is unreachable. Redis backends list such errors."""
    return isinstance(error, (ConnectionError, TimeoutError, *getattr(app.backend, "connection_errors", ())))
