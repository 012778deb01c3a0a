"""The tasks of a deploy, as `rl schema check` and isolated processes import them."""

from __future__ import annotations

from typing import Any

from relier import rl_task


@rl_task(isolate=True, schema_version=2)
def apart(n: int, *, by: int) -> int:
    return n * by


@apart.migration(from_version=1)
def up(payload: dict[str, Any]) -> dict[str, Any]:
    return {"args": [payload["args"][0] + 1], "kwargs": {"by": 2}}


@rl_task
def plain(n: int) -> int:
    return n


@rl_task(schema_version=3)
def gappy(n: int) -> int:
    return n


@rl_task(schema_version=2)
def raising() -> None: ...


@raising.migration(from_version=1)
def no(payload: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError("no")
