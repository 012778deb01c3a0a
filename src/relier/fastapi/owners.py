"""Say which user owns a task, so that one user cannot read another's task.

The ledger stores no owner. The simplest place for one is the task's id, which the application chooses when it pushes:

    receipt = await make_report.with_options(task_id=new_owned_id(user.id)).apush(…)
    app.include_router(task_router(may_use=owner_in(current_user_id)))

An application that keeps task ids in its own database passes a function of its own instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

from starlette.requests import Request

from relier.errors import ConfigurationError
from relier.ledger.records import new_task_id

MayUse = Callable[[Request, str], bool | Awaitable[bool]]


def new_owned_id(owner: Any) -> str:
    """Return a new task id that belongs to this owner. The id holds a digest, not the owner's own id."""
    return f"{_digest(owner)}.{new_task_id()}"


def owner_in(current: Callable[[Request], Any]) -> MayUse:
    """Return a check for ids of `new_owned_id`. `current` returns the owner of a request, or None for nobody."""

    async def may_use(request: Request, task_id: str) -> bool:
        owner = current(request)
        owner = await owner if inspect.isawaitable(owner) else owner
        return owner is not None and task_id.partition(".")[0] == _digest(owner)

    return may_use


def anyone(request: Request, task_id: str) -> bool:  # noqa: ARG001 - the form of such a check
    """Let everybody who knows the id of a task use it."""
    return True


async def is_allowed(may_use: MayUse, request: Request, task_id: str) -> bool:
    """Return whether `may_use` allows the request to use the task. `may_use` may be a coroutine function."""
    allowed = may_use(request, task_id)
    return bool(await allowed if inspect.isawaitable(allowed) else allowed)


def check_may_use(may_use: Any) -> None:
    if not callable(may_use):
        raise ConfigurationError(
            f"may_use must be a function of a request and a task id that returns whether the user may see the task, "
            f"not {may_use!r:.60}; see owner_in, or pass `anyone`"
        )


def _digest(owner: Any) -> str:
    digest = sha256(f"{type(owner).__name__}:{owner}".encode()).hexdigest()
    return digest[:24]  # with a dot and 32 digits more, the id still fits an outbox row
