"""Migrate payloads that older code pushed to this code's schema version, step by step.

@charge.migration(from_version=1)
def cents(payload):                      # {"args": […], "kwargs": {…}}
    payload["kwargs"]["cents"] = payload["kwargs"].pop("euros") * 100
    return payload
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from relier import codec
from relier.arguments import call_in
from relier.envelope import Envelope
from relier.errors import RelierError, SchemaMigrationError

if TYPE_CHECKING:
    from relier.task import RlTask


def migrated(task: RlTask[Any, Any], envelope: Envelope) -> bytes:
    """Return the payload's body in this code's schema version.

    Raise SchemaMigrationError if a migration is missing or fails, or if the task cannot be called with the result.
    Raise PayloadEncodingError if the original payload is not a call.
    """
    version, wanted = envelope.schema_version, task.options.schema_version
    if version == wanted:
        return envelope.body
    args, kwargs = call_in(codec.decode(envelope.body, "the payload"))
    payload: dict[str, Any] = {"args": args, "kwargs": kwargs}
    while version < wanted:
        payload = _step(task, version, payload)
        version += 1
    try:
        body = codec.encode([payload["args"], payload["kwargs"]], "the migrated payload")
        task.arguments.check(*task.arguments.decode(body))
    except (RelierError, TypeError) as error:
        raise SchemaMigrationError(
            f"{task.name}: the migrated payload does not fit the function: {error}; correct the migration"
        ) from error
    return body


def _step(task: RlTask[Any, Any], version: int, payload: dict[str, Any]) -> dict[str, Any]:
    step = task.migrations.get(version)
    if step is None:
        raise SchemaMigrationError(
            f"{task.name}: the payload has schema version {version}, this code wants {task.options.schema_version}, "
            f"and there is no migration; write one: @{task.fn.__name__}.migration(from_version={version})"
        )
    try:
        after = step(copy.deepcopy(payload))
    except BaseException as error:  # other tasks share this process: not even a sys.exit() may end it
        raise SchemaMigrationError(
            f"{task.name}: the migration from version {version} raised {type(error).__name__}: {error}"
        ) from error
    if not _is_call(after):
        raise SchemaMigrationError(
            f"{task.name}: the migration from version {version} must return {{'args': […], 'kwargs': {{…}}}}, not "
            f"{codec.shown(after)}"
        )
    return {"args": list(after["args"]), "kwargs": after["kwargs"]}


def _is_call(payload: Any) -> bool:
    match payload:
        case {"args": list() | tuple(), "kwargs": dict() as kwargs}:
            return isinstance(payload, dict) and all(isinstance(name, str) for name in kwargs)
    return False
