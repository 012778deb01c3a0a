"""Tasks of an application that uses Sentry."""

from __future__ import annotations

import os
from typing import Any

import sentry_sdk
from sentry_sdk.integrations.asyncio import AsyncioIntegration
from sentry_sdk.integrations.logging import ignore_logger

from relier import TaskContext, rl_task, use_middleware
from tests.support.jobs.common import FOLDER
from tests.support.sentry_file import report_to

report_to(FOLDER / "sentry", [AsyncioIntegration()])


async def captured(call_next: Any, ctx: TaskContext) -> Any:
    """Report the exception itself, as docs/how-to/logs.md shows."""
    try:
        return await call_next(ctx)
    except Exception as error:
        sentry_sdk.capture_exception(error)
        raise


if "CAPTURED" in os.environ:
    ignore_logger("relier.task")
    use_middleware(run=[captured])


@rl_task(retries=0)
async def fails() -> None:
    raise LookupError("async")


@rl_task(retries=0)
def fails_in_thread() -> None:
    raise LookupError("thread")


@rl_task(retries=0, isolate=True)
async def fails_alone() -> None:
    raise LookupError("isolated")
