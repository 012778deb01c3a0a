"""Wait through outages of the store when a running task pushes: an outage must not make the task fail.

Each push keeps its id, so repeating a push never makes a second task. A task does not wait for a full store: the store
may have room again only after this task has ended. Nor does a task wait for a store that cannot confirm the durability
it asked for: that is a mistake to correct.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from relier.errors import IndeterminateError, RelierError, StoreFullError, StoreSetupError, StoreUnavailableError
from relier.store.call import Durability
from relier.store.until_answered import until_answered

T = TypeVar("T")
log = logging.getLogger("relier.submit")


@dataclass(frozen=True, slots=True)
class PushingAttempt:
    """Represent the attempt whose code runs here. Time spent inside `waiting()` does not count as the attempt's own.

    `context`: its TaskContext, for tasks that the code calls directly.
    """

    task_id: str
    lost: Callable[[], bool]
    waiting: Callable[[], AbstractContextManager[None]]
    context: Any = None


pushing_attempt: ContextVar[PushingAttempt | None] = ContextVar("relier_pushing_attempt", default=None)


async def submit_until_answered(
    submit: Callable[[], Awaitable[T]],
    attempt: PushingAttempt,
    level: Durability,
    sleep: Callable[[float], Awaitable[Any]],
) -> T:
    """Submit from inside a running task. Retry, however long an outage lasts, until the store answers."""
    with attempt.waiting():
        return await until_answered(submit, partial(_again, attempt, level), sleep=sleep)


def raise_temporary(answers: list[Any], level: Durability) -> list[Any]:
    """Return the answers to a bulk. In a running task, raise the first temporary error among them instead."""
    if pushing_attempt.get() is not None:
        for answer in answers:
            if isinstance(answer, RelierError) and _is_temporary(answer, level):
                raise answer
    return answers


def _is_temporary(error: RelierError, level: Durability) -> bool:
    if isinstance(error, StoreSetupError):
        return level is Durability.MEMORY
    return isinstance(error, StoreUnavailableError | IndeterminateError) and not isinstance(error, StoreFullError)


def _again(attempt: PushingAttempt, level: Durability, error: RelierError) -> None:
    if attempt.lost() or not _is_temporary(error, level):
        raise error
    log.warning("push from task %s failed and will be repeated: %s", attempt.task_id, error)
