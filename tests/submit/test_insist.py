"""What a push inside a running task waits for, and what it does not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

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
from relier.submit.insist import Pusher, ainsist, insist, pusher, unless_it_passes

PASSING = (RedisConnectionError, StoreNotReadyError, StoreReadOnlyError, StoreDiskError, IndeterminateError)


class Store:
    """Fails once with an error, then answers."""

    def __init__(self, error: RelierError) -> None:
        self.errors = [error]

    def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop()
        return "accepted"

    async def answer(self) -> str:
        return self()


@pytest.fixture
def inside() -> Iterator[Callable[[bool], None]]:
    """As if in a running task, or in one that is lost."""
    before = pusher.get()

    def enter(lost: bool) -> None:
        pusher.set(Pusher("task", lambda: lost, contextlib.nullcontext))

    yield enter
    pusher.set(before)


@pytest.mark.parametrize("error", [*(kind("away") for kind in PASSING), PushIndeterminate("id")])
def test_a_task_waits_for_what_passes(inside: Callable[[bool], None], error: RelierError) -> None:
    with pytest.raises(type(error)):
        insist(Store(error), Durability.MEMORY)
    inside(False)
    assert insist(Store(error), Durability.FSYNC) == "accepted"
    with pytest.raises(type(error)):
        unless_it_passes([["accepted"], error], Durability.FSYNC)


@pytest.mark.parametrize("error", [StoreFullError("full"), StoreReplyError("no")])
def test_a_task_hears_what_does_not_pass(inside: Callable[[bool], None], error: RelierError) -> None:
    inside(False)
    with pytest.raises(type(error)):
        insist(Store(error), Durability.MEMORY)
    assert unless_it_passes([error], Durability.MEMORY) == [error]


def test_a_refused_client_waits_but_not_for_a_durability_that_cannot_be(inside: Callable[[bool], None]) -> None:
    inside(False)
    assert insist(Store(StoreSetupError("the password was changed")), Durability.MEMORY) == "accepted"
    with pytest.raises(StoreSetupError):
        insist(Store(StoreSetupError("there are 0 replicas")), Durability.REPLICATED)


def test_one_that_is_lost_gives_up(inside: Callable[[bool], None]) -> None:
    inside(True)
    with pytest.raises(RedisConnectionError):
        insist(Store(RedisConnectionError("away")), Durability.MEMORY)


@pytest.mark.anyio
async def test_on_an_event_loop(inside: Callable[[bool], None]) -> None:
    with pytest.raises(RedisConnectionError):
        await ainsist(Store(RedisConnectionError("away")).answer, Durability.MEMORY)
    inside(False)
    assert await ainsist(Store(RedisConnectionError("away")).answer, Durability.MEMORY) == "accepted"
    with pytest.raises(StoreFullError):
        await ainsist(Store(StoreFullError("full")).answer, Durability.MEMORY)
