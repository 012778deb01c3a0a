"""Which errors a push inside a running task waits for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from relier.errors import (
    IndeterminateError,
    PushIndeterminate,
    RedisConnectionError,
    RelierError,
    StoreDiskError,
    StoreFullError,
    StoreNotReadyError,
    StoreReadOnlyError,
    StoreReplyError,
    StoreSetupError,
)
from relier.store.call import Durability
from relier.store.sync_wire import run_sync
from relier.store.until_answered import blocking_sleep
from relier.submit.in_task import PushingAttempt, pushing_attempt, raise_temporary, submit_until_answered

TEMPORARY = (RedisConnectionError, StoreNotReadyError, StoreReadOnlyError, StoreDiskError, IndeterminateError)
ATTEMPT = PushingAttempt("task", lambda: False, contextlib.nullcontext)
LOST = PushingAttempt("task", lambda: True, contextlib.nullcontext)


class Store:
    """A store that fails once with an error, then answers."""

    def __init__(self, error: RelierError) -> None:
        self.errors = [error]

    async def answer(self) -> str:
        if self.errors:
            raise self.errors.pop()
        return "accepted"


def submit(error: RelierError, level: Durability = Durability.MEMORY, attempt: PushingAttempt = ATTEMPT) -> str:
    return run_sync(submit_until_answered(Store(error).answer, attempt, level, blocking_sleep))


@pytest.fixture
def inside() -> Iterator[None]:
    """Act as if inside a running task."""
    before = pushing_attempt.get()
    pushing_attempt.set(ATTEMPT)
    yield
    pushing_attempt.set(before)


@pytest.mark.parametrize("error", [*(kind("away") for kind in TEMPORARY), PushIndeterminate("id")])
def test_a_task_waits_for_temporary_errors(error: RelierError) -> None:
    assert submit(error, Durability.FSYNC) == "accepted"


@pytest.mark.parametrize("error", [*(kind("away") for kind in TEMPORARY), PushIndeterminate("id")])
def test_temporary_errors_of_a_bulk_are_raised_only_inside_a_task(
    request: pytest.FixtureRequest, error: RelierError
) -> None:
    answers = [["accepted"], error]
    assert raise_temporary(answers, Durability.FSYNC) == answers
    request.getfixturevalue("inside")
    with pytest.raises(type(error)):
        raise_temporary(answers, Durability.FSYNC)


@pytest.mark.parametrize("error", [StoreFullError("full"), StoreReplyError("no")])
@pytest.mark.usefixtures("inside")
def test_a_task_gets_errors_that_are_not_temporary(error: RelierError) -> None:
    with pytest.raises(type(error)):
        submit(error)
    assert raise_temporary([error], Durability.MEMORY) == [error]


def test_a_refused_client_waits_but_not_for_a_durability_that_cannot_be() -> None:
    assert submit(StoreSetupError("the password was changed")) == "accepted"
    with pytest.raises(StoreSetupError):
        submit(StoreSetupError("there are 0 replicas"), Durability.REPLICATED)


def test_an_attempt_that_is_lost_gives_up() -> None:
    with pytest.raises(RedisConnectionError):
        submit(RedisConnectionError("away"), attempt=LOST)


@pytest.mark.anyio
async def test_a_push_on_an_event_loop_waits_for_the_store() -> None:
    away = Store(RedisConnectionError("away"))
    assert await submit_until_answered(away.answer, ATTEMPT, Durability.MEMORY, asyncio.sleep) == "accepted"
    with pytest.raises(StoreFullError):
        await submit_until_answered(Store(StoreFullError("full")).answer, ATTEMPT, Durability.MEMORY, asyncio.sleep)
