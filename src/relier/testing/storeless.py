"""Send pushes somewhere other than a store: the client that `recorded` and `inline` use in place of the real one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from relier.errors import ConfigurationError, RelierError
from relier.ledger.records import Accepted, Admission, Submission
from relier.settings import Settings, get_settings
from relier.store import Call, Durability
from relier.submit.client import Client, KeptValue, use_client
from relier.submit.ledger_access import Answers, LedgerAccess, Namespace

T = TypeVar("T")


class Taker(ABC):
    """Take the pushed tasks, and answer as the ledger would. `take` may block, `atake` runs on an event loop.

    `client` is the client that the tasks were pushed through.
    """

    client: Client

    @abstractmethod
    def take(self, task: Submission) -> Accepted: ...

    @abstractmethod
    async def atake(self, task: Submission) -> Accepted: ...

    @abstractmethod
    def answer(self, call: Call[Any]) -> Any:
        """Return the answer to any other call, such as that of a receipt. Raise if only a store could answer it."""


class NoStore:
    """Stand in for the calls of a store. Nothing reaches it."""

    def run(self, call: Call[T], within: float) -> NoReturn:  # noqa: ARG002 - the contract of StoreCalls
        raise no_store(call.script)

    def run_many(self, calls: Iterable[Call[T]]) -> NoReturn:
        raise no_store(", ".join(call.script for call in calls))

    def sleep(self, seconds: float) -> NoReturn:  # noqa: ARG002
        raise no_store("wait")


class StorelessAccess(LedgerAccess[Any]):
    """Pass pushes to a Taker. `blocks`: the coroutines of this object must not suspend."""

    def __init__(self, namespace: Namespace, taker: Taker, *, blocks: bool) -> None:
        super().__init__(namespace, NoStore())
        self._taker = taker
        self._blocks = blocks

    async def open(self, within: float = math.inf) -> None: ...

    async def run(self, call: Call[T], within: float = math.inf) -> T:  # noqa: ARG002
        answer: T = self._taker.answer(call)
        return answer

    async def submit(
        self,
        tasks: Sequence[Submission],
        admission: Admission | None,  # noqa: ARG002 - limits need a store
        level: Durability,  # noqa: ARG002
    ) -> list[Accepted]:
        if any(task.member is not None for task in tasks):
            raise no_store("a workflow")
        return [self._taker.take(task) if self._blocks else await self._taker.atake(task) for task in tasks]

    async def submit_all(
        self, chunks: Sequence[Sequence[Submission]], admission: Admission | None, level: Durability
    ) -> Answers:
        answers: list[list[Accepted] | RelierError] = [await self.submit(each, admission, level) for each in chunks]
        return answers


class StorelessClient(Client):
    """Validate and encode pushes with the settings of the environment, and pass them to a Taker."""

    is_stand_in = True

    def __init__(self, taker: Taker) -> None:
        super().__init__(without_shards(get_settings()))
        self._taker = taker
        taker.client = self

    @KeptValue
    def awaiting(self) -> LedgerAccess[Any]:
        return StorelessAccess(self.namespace, self._taker, blocks=False)

    @KeptValue
    def blocking(self) -> LedgerAccess[Any]:
        return StorelessAccess(self.namespace, self._taker, blocks=True)

    async def aclose(self) -> None:
        """Do nothing: nothing was opened."""

    def close(self) -> None:
        """Do nothing: nothing was opened."""


def without_shards(settings: Settings) -> Settings:
    """Return the settings for a test, which needs no shards: they only spread the load of stores."""
    return settings.replace(shards=1, redis_url=settings.of_shard(0).redis_url) if settings.shards > 1 else settings


@contextmanager
def pushing_to(taker: Taker) -> Iterator[None]:
    """Push to this Taker inside the block."""
    before = use_client(StorelessClient(taker))
    try:
        yield
    finally:
        use_client(before)


def no_store(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"this test has no store, which {what!r} needs; use the fixture `relier_store`, or write "
        f"`with relier.testing.store():`"
    )
