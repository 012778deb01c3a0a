"""Payloads that older code pushed, brought up to this code's schema version, step by step.

@charge.migration(from_version=1)
def cents(payload):                      # {"args": […], "kwargs": {…}}
    payload["kwargs"]["cents"] = payload["kwargs"].pop("euros") * 100
    return payload
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from relier import codec
from relier.envelope import Envelope
from relier.errors import RelierError, SchemaMigrationError

if TYPE_CHECKING:
    from relier.task import RlTask


def migrated(task: RlTask[Any, Any], envelope: Envelope) -> bytes:
    """The body as this code wants it. SchemaMigrationError where there is no way, or a step fails."""
    version, wanted = envelope.schema_version, task.options.schema_version
    if version == wanted:
        return envelope.body
    args, kwargs = codec.decode(envelope.body)
    payload = {"args": list(args), "kwargs": dict(kwargs)}
    while version < wanted:
        payload = _step(task, version, payload)
        version += 1
    try:
        return codec.encode([payload["args"], payload["kwargs"]], "the migrated payload")
    except RelierError as error:
        raise SchemaMigrationError(f"{task.name}: what the migrations made cannot travel: {error}") from error


def _step(task: RlTask[Any, Any], version: int, payload: dict[str, Any]) -> dict[str, Any]:
    step = task.migrations.get(version)
    if step is None:
        raise SchemaMigrationError(
            f"{task.name}: the payload has schema version {version}, this code wants {task.options.schema_version}, "
            f"and there is no way; write a migration: @{task.fn.__name__}.migration(from_version={version})"
        )
    try:
        after = step(copy.deepcopy(payload))
    except Exception as error:
        raise SchemaMigrationError(
            f"{task.name}: the migration from version {version} raised {type(error).__name__}: {error}"
        ) from error
    if (
        not isinstance(after, dict)
        or not isinstance(after.get("args"), list | tuple)
        or not isinstance(after.get("kwargs"), dict)
    ):
        raise SchemaMigrationError(
            f"{task.name}: the migration from version {version} must return {{'args': […], 'kwargs': {{…}}}}, not "
            f"{after!r:.80}"
        )
    return {"args": list(after["args"]), "kwargs": after["kwargs"]}
