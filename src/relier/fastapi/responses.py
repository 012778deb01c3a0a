"""Answer errors of pushes in a way that clients and proxies understand, with Retry-After.

429   AdmissionRejectedError: a limit was reached, nothing was accepted
409   a task with the same idempotency key is there already (on_duplicate="raise")
503   the store is unreachable, full or did not confirm in time. If the push may have been accepted, the answer has
`task_id`
"""

from __future__ import annotations

import logging
import math
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from relier.errors import (
    AdmissionRejectedError,
    DuplicateTaskError,
    IndeterminateError,
    RelierError,
    StoreUnavailableError,
    TaskInFlightError,
)

log = logging.getLogger("relier.fastapi")

AWAY_S = 2  # when to ask again while the store is unreachable


def add_exception_handlers(app: Any) -> None:
    """Add the handlers to a FastAPI or Starlette application."""
    app.add_exception_handler(AdmissionRejectedError, too_many)
    app.add_exception_handler(DuplicateTaskError, duplicate)
    app.add_exception_handler(TaskInFlightError, duplicate)
    app.add_exception_handler(StoreUnavailableError, unavailable)
    app.add_exception_handler(IndeterminateError, unavailable)


async def too_many(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, AdmissionRejectedError)  # noqa: S101 - what it is registered for
    wait = max(1, math.ceil(error.retry_after))
    log.info("%s %s: %s", request.method, request.url.path, error)
    return JSONResponse(
        {"detail": f"Too many requests. Try again in {wait} s."}, 429, headers={"Retry-After": str(wait)}
    )


async def duplicate(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RelierError)  # noqa: S101 - what it is registered for
    log.info("%s %s: %s", request.method, request.url.path, error)
    return JSONResponse({"detail": "This was requested before.", "task_id": getattr(error, "task_id", "")}, 409)


async def unavailable(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RelierError)  # noqa: S101 - what it is registered for
    log.warning("%s %s: %s", request.method, request.url.path, error)
    answer = {"detail": f"Temporarily unavailable. Try again in {AWAY_S} s."}
    if task_id := getattr(error, "task_id", ""):
        answer["task_id"] = task_id
    return JSONResponse(answer, 503, headers={"Retry-After": str(AWAY_S)})
