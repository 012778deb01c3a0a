"""Connect a test to its store: as the application's client does, but on the store's virtual clock and without waiting.

Every call blocks, also on an event loop: a local server answers within a fraction of a millisecond. So nothing is in
flight while the loop is idle, and whatever still waits then waits for time, or for the application's own sockets.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from relier.errors import RelierError, ResultTimeoutError
from relier.store import AsyncStore, Call, Durability, Scripts, SyncStore
from relier.store.until_answered import blocking_sleep
from relier.submit.client import Client, KeptValue
from relier.submit.in_task import pushing_attempt
from relier.submit.ledger_access import AwaitedCalls, BlockingCalls, LedgerAccess
from relier.testing.virtual.store_clock import clocked_scripts

T = TypeVar("T")
Observer = Callable[[Call[Any]], None]


class ObservedStore(SyncStore):
    """Run calls, and report each before and after it ran, to the code that simulates failures.

    `tick` moves the clock a little with every push, so that tasks run in the order in which they were pushed. Calls of
    `run_many` are not reported: only pushes of many tasks use it.
    """

    before: Observer | None = None
    after: Observer | None = None
    tick: Callable[[], None] | None = None

    def run(self, call: Call[T], within: float = math.inf) -> T:
        if call.script == "submit" and self.tick is not None:
            self.tick()
        if self.before is not None:
            self.before(call)
        answer = super().run(in_memory(call), within)
        if self.after is not None:
            self.after(call)
        return answer

    def run_many(self, calls: Iterable[Call[T]]) -> list[T | RelierError]:
        return super().run_many(map(in_memory, calls))


class ImmediateStore(AsyncStore):
    """Answer the calls of an event loop from a blocking store. A doorbell rings when `ring` is called."""

    def __init__(self, client: Client, store: SyncStore) -> None:
        super().__init__(client.settings, client.scripts)
        self._store = store
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def run(self, call: Call[T]) -> T:
        return self._store.run(call)

    async def run_many(self, calls: Iterable[Call[T]]) -> list[T | RelierError]:
        return self._store.run_many(calls)

    async def command(self, *args: Any, retry: bool = False) -> Any:
        return self._store.command(*args, retry=retry)

    async def wait_for_bell(self, keys: list[str], timeout: float) -> bytes | None:  # noqa: ARG002, ASYNC109
        await self._rung.wait()
        self._rung.clear()
        return keys[0].encode()


class AwaitedTestCalls(AwaitedCalls):
    def sleep(self, seconds: float) -> Awaitable[None]:
        check_waits_in_task()
        return asyncio.sleep(seconds)


class BlockingTestCalls(BlockingCalls):
    def sleep(self, seconds: float) -> Awaitable[None]:
        check_waits_in_task()
        return blocking_sleep(seconds)


class SimulatedClient(Client):
    """Run the moves of one namespace on a store with a virtual clock."""

    is_stand_in = True

    @KeptValue
    def scripts(self) -> Scripts:
        return clocked_scripts()

    @KeptValue
    def observed(self) -> ObservedStore:
        return ObservedStore(self.settings, self.scripts)

    @KeptValue
    def awaiting(self) -> LedgerAccess[AwaitedCalls]:
        return LedgerAccess(self.namespace, AwaitedTestCalls(ImmediateStore(self, self.observed)))

    @KeptValue
    def blocking(self) -> LedgerAccess[BlockingCalls]:
        return LedgerAccess(self.namespace, BlockingTestCalls(self.observed))

    @KeptValue
    def renewals(self) -> AsyncStore:
        return ImmediateStore(self, self.observed)

    def close(self) -> None:
        super().close()
        self.observed.close()


def in_memory(call: Call[T]) -> Call[T]:
    """Return the call without its durability: the server of a test has no replicas, and its data is removed anyway."""
    return call if call.durability is Durability.MEMORY else replace(call, durability=Durability.MEMORY)


def check_waits_in_task() -> None:
    """Raise if the test itself waits for a task that has not ended: nothing would run it meanwhile."""
    if pushing_attempt.get() is None:
        raise ResultTimeoutError(
            "the task has not ended, and in a test nothing runs tasks in the background; call run_pending(), or await "
            "arun_pending(), before you ask for the result"
        )
