"""Relier in FastAPI and Starlette applications.

lifespan.py     opens the client when the application starts, and closes it when it ends
responses.py    answers for errors: 429 over a limit, 503 while the store is unreachable, each with Retry-After
owners.py       says which user owns a task, by the task's id
tasks.py        what a client may ask about a task: status, result, cancellation, progress as server-sent events
routes.py       the same as a FastAPI router and as Starlette routes
receipts.py     the receipt of a task as a dependency, for endpoints of the application's own
background.py   a replacement for BackgroundTasks that loses nothing

Only `task_router` and `DurableTasks` need FastAPI; all else works with Starlette alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relier.fastapi.background import DurableTasks
    from relier.fastapi.lifespan import get_client, relier_lifespan
    from relier.fastapi.owners import anyone, new_owned_id, owner_in
    from relier.fastapi.receipts import receipt_for
    from relier.fastapi.responses import add_exception_handlers
    from relier.fastapi.routes import task_router, task_routes

_HOME_OF = {
    "DurableTasks": "background",
    "add_exception_handlers": "responses",
    "anyone": "owners",
    "get_client": "lifespan",
    "new_owned_id": "owners",
    "owner_in": "owners",
    "receipt_for": "receipts",
    "relier_lifespan": "lifespan",
    "task_router": "routes",
    "task_routes": "routes",
}

__all__ = [
    "DurableTasks",
    "add_exception_handlers",
    "anyone",
    "get_client",
    "new_owned_id",
    "owner_in",
    "receipt_for",
    "relier_lifespan",
    "task_router",
    "task_routes",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'relier.fastapi' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"relier.fastapi.{_HOME_OF[name]}"), name)
    return value
