"""Run calls of one namespace: open the namespace first, notice an emptied store, submit tasks.

All of this is written once, as coroutines. On an event loop they are awaited, over AwaitedCalls. Over BlockingCalls
every call blocks instead of suspending, so `run_sync` can run each coroutine to its end in one step, without an event
loop (store/sync_wire.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from relier.errors import (
    PushIndeterminate,
    RedisConnectionError,
    RelierError,
    StoreEmptiedError,
    StoreError,
    StoreReplyError,
    StoreSetupError,
    StoreUnavailableError,
)
from relier.ledger.ledger import Ledger, scripts_of
from relier.ledger.records import Accepted, Admission, Submission
from relier.settings import Settings
from relier.store import AsyncStore, Call, Durability, SyncStore
from relier.store.until_answered import blocking_sleep
from relier.submit.birth import BirthMark, RootCheck
from relier.submit.in_task import pushing_attempt, raise_temporary, submit_until_answered

T = TypeVar("T")
log = logging.getLogger("relier.submit")
SHORTEST_S = 0.25  # for the first call after the namespace was opened, which shows that the store is healthy
ROOT_S = 1.0  # for the check of the number of shards, which must not hold up pushes while its server is away

Answers = list[list[Accepted] | RelierError]


class StoreCalls(Protocol):
    """Send calls to the store, and wait. `within`: the most seconds for one call, unless its deadline comes sooner."""

    def run(self, call: Call[T], within: float) -> Awaitable[T]: ...
    def run_many(self, calls: Iterable[Call[T]]) -> Awaitable[list[T | RelierError]]: ...
    def wait_for_entries(self, positions: Mapping[str, str], seconds: float) -> Awaitable[None]: ...
    def sleep(self, seconds: float) -> Awaitable[None]: ...
    def run_elsewhere(self, settings: Settings, call: Call[T], within: float) -> Awaitable[T]: ...


class AwaitedCalls:
    """Send calls from an event loop."""

    def __init__(self, store: AsyncStore) -> None:
        self.store = store

    async def run_elsewhere(self, settings: Settings, call: Call[T], within: float) -> T:
        """Run one call on the store of other settings, over a connection of its own."""
        async with AsyncStore(settings, scripts_of(settings)) as store:
            return await AwaitedCalls(store).run(call, within)

    def run(self, call: Call[T], within: float) -> Awaitable[T]:
        return self.store.run(call) if within == math.inf else self._run_within(call, within)

    async def _run_within(self, call: Call[T], seconds: float) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await self.store.run(call)
        except TimeoutError:
            raise RedisConnectionError(
                f"the store did not answer within the {seconds:.3g} s that were left; try again, or allow more time"
            ) from None

    def run_many(self, calls: Iterable[Call[T]]) -> Awaitable[list[T | RelierError]]:
        return self.store.run_many(calls)

    def wait_for_entries(self, positions: Mapping[str, str], seconds: float) -> Awaitable[None]:
        return self.store.wait_for_entries(positions, seconds)

    def sleep(self, seconds: float) -> Awaitable[None]:
        return asyncio.sleep(seconds)


class BlockingCalls:
    """Send calls from a thread, and block it. The coroutines of this class never suspend."""

    def __init__(self, store: SyncStore) -> None:
        self.store = store

    async def run_elsewhere(self, settings: Settings, call: Call[T], within: float) -> T:
        """Run one call on the store of other settings, over a connection of its own."""
        with SyncStore(settings, scripts_of(settings)) as store:
            return store.run(call, within)

    async def run(self, call: Call[T], within: float) -> T:
        return self.store.run(call, within)

    async def run_many(self, calls: Iterable[Call[T]]) -> list[T | RelierError]:
        return self.store.run_many(calls)

    async def wait_for_entries(self, positions: Mapping[str, str], seconds: float) -> None:
        self.store.wait_for_entries(positions, seconds)

    def sleep(self, seconds: float) -> Awaitable[None]:
        return blocking_sleep(seconds)


C = TypeVar("C", bound=StoreCalls)


@dataclass(slots=True)
class Namespace:
    """Hold what one process knows of its namespace. `opened`: the store has accepted this process before. `pushed`: a
    task of this process was accepted."""

    settings: Settings
    ledger: Ledger
    birth: BirthMark
    root: RootCheck | None = None
    opened: bool = False
    pushed: bool = False


class LedgerAccess(Generic[C]):
    """Run the calls of one kind of callers, awaiting or blocking."""

    def __init__(self, namespace: Namespace, calls: C) -> None:
        self._namespace = namespace
        self.calls = calls

    async def open(self, within: float = math.inf) -> None:
        """Mark the namespace with this release's layout, once per process. Raise if the layout there is different."""
        known = self._namespace
        if not known.opened:
            if known.root is not None and not known.root.done:
                await self._check_root(known.root, min(within, ROOT_S))
            known.birth.learn(await self.calls.run(known.ledger.open(known.birth.mark), within))
            known.opened = True

    async def _check_root(self, root: RootCheck, within: float) -> None:
        """Raise ShardsError if the namespace is used under another number of shards."""
        with contextlib.suppress(StoreUnavailableError):
            await self.calls.run_elsewhere(root.settings, root.ledger.open(), within)
            root.done = True

    async def run(self, call: Call[T], within: float = math.inf) -> T:
        """Run one call within its deadline, or within `within` seconds if that is shorter."""
        if not self._namespace.opened:
            until = time.monotonic() + within
            await self.open(within)
            within = max(SHORTEST_S, until - time.monotonic())
        try:
            return await self.calls.run(call, within)
        except StoreEmptiedError:
            await self._reopen()
            raise

    def wait_for_entries(self, positions: Mapping[str, str], seconds: float) -> Awaitable[None]:
        """Wait until a stream of events has an entry after its position, or for `seconds`."""
        return self.calls.wait_for_entries(positions, seconds)

    def sleep(self, seconds: float) -> Awaitable[None]:
        return self.calls.sleep(seconds)

    async def _reopen(self) -> None:
        """Open the namespace again, because the store's birth mark differs from the one that this process remembers."""
        self._namespace.opened = False
        if self._namespace.root is not None:
            self._namespace.root.done = False  # the root may have been on the same server
        with contextlib.suppress(RelierError):  # the next call tries again
            await self.open()

    async def submit(
        self, tasks: Sequence[Submission], admission: Admission | None, level: Durability
    ) -> list[Accepted]:
        """Submit the tasks; in a running task, until the store answers."""
        attempt = pushing_attempt.get()
        if attempt is None:
            return await self._submit(tasks, admission, level)
        send = partial(self._submit, tasks, admission, level)
        return await submit_until_answered(send, attempt, level, self.calls.sleep)

    async def submit_all(
        self, chunks: Sequence[Sequence[Submission]], admission: Admission | None, level: Durability
    ) -> Answers:
        """Submit several chunks of tasks. Return, for each chunk, the accepted tasks or the error of the store."""
        attempt = pushing_attempt.get()
        if attempt is None:
            return await self._submit_all(chunks, admission, level)
        send = partial(self._submit_all, chunks, admission, level)
        return await submit_until_answered(send, attempt, level, self.calls.sleep)

    async def _submit(
        self, tasks: Sequence[Submission], admission: Admission | None, level: Durability
    ) -> list[Accepted]:
        ledger = self._namespace.ledger
        try:
            accepted = await self.run(ledger.submit(tasks, admission, level))
        except StoreError as error:
            if not self._goes_on_without_limits(error, admission):
                _add_ids(error, tasks)
                raise
            accepted = await self.run(ledger.submit(tasks, None, level))
        if not self._namespace.pushed:
            self._report_store()
        if self._is_another_store(accepted):
            await self._reopen()
        return accepted

    async def _submit_all(
        self, chunks: Sequence[Sequence[Submission]], admission: Admission | None, level: Durability
    ) -> Answers:
        answers: Answers
        try:
            if len(chunks) == 1:
                return [await self._submit(chunks[0], admission, level)]
            await self.open()  # again, if the store was emptied while the bulk was under way
        except (StoreError, PushIndeterminate) as error:
            return raise_temporary([error] * len(chunks), level)
        answers = await self.calls.run_many(self._namespace.ledger.submit(chunk, admission, level) for chunk in chunks)
        if not self._namespace.pushed:
            self._report_store()
        if self._is_another_store(answers[-1]):
            await self._reopen()
        return raise_temporary(answers, level)

    def _report_store(self) -> None:
        """Log once where the tasks of this process go. It is easy to give producers and workers different stores."""
        self._namespace.pushed = True
        log.info("first push of this process: its tasks go to %s", self._namespace.birth.where())

    def _is_another_store(self, answer: list[Accepted] | RelierError) -> bool:
        """Return whether the tasks were accepted by another store than the one this process remembers."""
        return not isinstance(answer, RelierError) and answer[0].born != self._namespace.birth.mark

    def _goes_on_without_limits(self, error: StoreError, admission: Admission | None) -> bool:
        """Return whether to push although the state of the limits cannot be read (RELIER_ADMISSION_FAIL_OPEN)."""
        if admission is None or not isinstance(error, StoreReplyError):
            return False
        if self._namespace.settings.admission_fail_open:
            log.warning("admission limits not checked, pushing without them: %s", error)
        return self._namespace.settings.admission_fail_open


def _add_ids(error: StoreError, tasks: Sequence[Submission]) -> None:
    """Add the ids under which the same tasks can be pushed again."""
    error.task_ids = tuple(task.id for task in tasks)
    if len(tasks) == 1 and not isinstance(error, StoreSetupError):
        error.add_note(
            f"push the task again with with_options(task_id={error.task_id!r}): that never makes a second task"
        )
