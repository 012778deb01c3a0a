"""Pushes inside a running task wait for a store that is away, as its steps do: an outage is no failure of a task. Each
keeps its id, so that it is one task however often it is sent.

They do not wait for a store that is full, which may need them to end, nor for one that cannot confirm the durability
that was asked for: that is a mistake to correct.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from relier.errors import IndeterminateError, RelierError, StoreFullError, StoreSetupError, StoreUnavailableError
from relier.store.call import Durability
from relier.until_answered import auntil_answered, until_answered

T = TypeVar("T")
log = logging.getLogger("relier.submit")


@dataclass(frozen=True, slots=True)
class Pusher:
    """The attempt that pushes. `waiting`: around what is no part of its own time."""

    task_id: str
    lost: Callable[[], bool]
    waiting: Callable[[], AbstractContextManager[None]]


pusher: ContextVar[Pusher | None] = ContextVar("relier_pusher", default=None)


def insist(submit: Callable[[], T], level: Durability) -> T:
    """Submit; in a running task until the store answers."""
    who = pusher.get()
    if who is None:
        return submit()
    with who.waiting():
        return until_answered(submit, partial(_again, who, level))


async def ainsist(submit: Callable[[], Awaitable[T]], level: Durability) -> T:
    """The same for event loops."""
    who = pusher.get()
    if who is None:
        return await submit()
    with who.waiting():
        return await auntil_answered(submit, partial(_again, who, level))


def unless_it_passes(answers: list[Any], level: Durability) -> list[Any]:
    """The answers to a bulk; in a running task it raises an error among them that is worth waiting for."""
    if pusher.get() is not None:
        for error in _errors(answers):
            if _passes(error, level):
                raise error
    return answers


def _errors(answers: Iterable[Any]) -> Iterator[RelierError]:
    return (answer for answer in answers if isinstance(answer, RelierError))


def _passes(error: RelierError, level: Durability) -> bool:
    if isinstance(error, StoreSetupError):
        return level is Durability.MEMORY
    return isinstance(error, StoreUnavailableError | IndeterminateError) and not isinstance(error, StoreFullError)


def _again(who: Pusher, level: Durability, error: RelierError) -> None:
    if who.lost() or not _passes(error, level):
        raise error
    log.warning("a push of task %s will be sent again: %s", who.task_id, error)
