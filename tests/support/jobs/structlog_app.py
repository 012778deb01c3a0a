"""An application that logs with structlog, as its documentation recommends."""

from __future__ import annotations

import structlog

from relier import rl_task

structlog.configure(processors=[structlog.contextvars.merge_contextvars, structlog.processors.JSONRenderer()])
log = structlog.get_logger()


@rl_task
async def log_async() -> None:
    log.info("from the body")


@rl_task
def log_def() -> None:
    log.info("from the body")


@rl_task(isolate=True)
def log_isolated() -> None:
    log.info("from the body")
