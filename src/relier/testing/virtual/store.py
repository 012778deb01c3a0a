"""Provide a store for tests: a real embedded server, a namespace per test, a virtual clock, and no worker.

    with relier.testing.store():
        receipt = charge.push(42)
        run_pending()
        assert receipt.result() == "paid"

All tests of a process share one server, which starts when the first of them asks for it.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import math
import os
import shutil
import tempfile
import time
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from relier import background
from relier.errors import ConfigurationError
from relier.run.threads import Threads
from relier.schedules.declared import declare_all, declared_schedules
from relier.settings import Settings
from relier.store.sync_wire import run_sync
from relier.submit.client import use_client
from relier.testing.calling_thread import run_here
from relier.testing.virtual.client import SimulatedClient
from relier.testing.virtual.faults import Fault
from relier.testing.virtual.pending import PendingOptions, PendingRun
from relier.testing.virtual.ran import RanAttempt
from relier.testing.virtual.store_clock import SECOND_US, StoreClock

TICK_S = 1e-6
REMOVE_S = 2.0
_numbers = itertools.count(1)
_open_stores: list[VirtualStore] = []


class SharedServer:
    """Own the folder of an embedded server. The server starts with its first client and stops after its last one."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._folder = tempfile.mkdtemp(prefix="relier-test-")
        self._first: SimulatedClient | None = None

    def settings(self, **changed: Any) -> Settings:
        """Return the settings of the environment, for a new namespace on this server."""
        known: dict[str, Any] = {
            "redis_url": f"embedded://{quote(self._folder)}",
            "namespace": f"test-{self.pid}-{next(_numbers)}",
            "redis_use_sentinel": False,
            "shards": 1,
            "durability": "memory",
        }
        return Settings(**known | changed)

    def keep_running(self) -> None:
        """Stay a client, so that the server does not stop and restart between two tests."""
        if self._first is None:
            self._first = SimulatedClient(self.settings())
            self._first.observed.command("PING")

    def close(self) -> None:
        """Let the server end, and remove its folder. A forked child leaves both to its parent."""
        if self.pid == os.getpid():
            if self._first is not None:
                self._first.close()
                self._first = None
            until = time.monotonic() + REMOVE_S
            while os.path.exists(self._folder) and time.monotonic() < until:  # the server may still write to its log
                shutil.rmtree(self._folder, ignore_errors=True)


_server: SharedServer | None = None


def shared_server() -> SharedServer:
    """Return the server of this process. It ends with the process."""
    global _server
    if _server is None or _server.pid != os.getpid():
        _server = SharedServer()
        atexit.register(_server.close)
    return _server


def close_server() -> None:
    """End the server of this process, if there is one. The next store starts another."""
    global _server
    if _server is not None:
        _server.close()
    _server = None


class VirtualStore:
    """Give one test a namespace with a virtual clock. Tasks are pushed there while the block runs.

    `settings` are fields of Settings that differ from the environment, such as `heartbeat_ttl=30`.
    """

    def __init__(self, **settings: Any) -> None:
        self._changed = settings
        self._runner: asyncio.Runner | None = None

    def __enter__(self) -> Self:
        server = shared_server()
        server.keep_running()
        self.client = SimulatedClient(server.settings(**self._changed))
        store, begin = self.client.observed, time.time_ns() // 1_000_000
        self._clock = StoreClock(store.command, self.client.ledger.prefix, 1000 * begin)
        store.tick = partial(self._clock.advance, TICK_S)
        self._before = use_client(self.client)
        _open_stores.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _open_stores.remove(self)
        use_client(self._before)
        if self._runner is not None:
            self._runner.close()
        self.client.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(shared_server().keep_running)  # starting a server takes longer than a loop may block
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    @property
    def now(self) -> datetime:
        """Return the store's time, which only `run_pending` and `advance` move."""
        return datetime.fromtimestamp(self._clock.now_us / SECOND_US, UTC)

    def advance(self, span: float | timedelta) -> None:
        """Let time pass, in seconds or as a timedelta. Nothing runs meanwhile."""
        self._clock.advance(span.total_seconds() if isinstance(span, timedelta) else span)

    def declare_schedules(self) -> None:
        """Write the schedules that the imported code declares, as a worker does when it starts."""
        run_sync(declare_all(self.client, self.client.blocking.run, "tests", declared_schedules()))

    def run_pending(
        self,
        *faults: Fault,
        within: float | timedelta | None = None,
        queues: Sequence[str] | None = None,
        concurrency: int = 1,
    ) -> list[RanAttempt]:
        """Run all tasks that are queued, delayed or to be retried, and those that they push, until none is left.

        Time passes at once: the store's clock moves to the next task that is due. `within`: not further than this.
        Schedules fire while it passes; without `within`, they do not make it pass, because they never end.
        `queues`: only these. `concurrency`: how many attempts run at the same time; one by one is the default, because
        tests often share one database session. One by one, a `def` runs in the calling thread. Returns every attempt,
        in the order in which they ended.
        """
        _refuse_running_loop()
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)
        run = partial(background.run_until_done, self._runner.get_loop())
        options = self._options(within, queues, concurrency)
        return run_here(lambda here: self._run(faults, options, here if concurrency == 1 else None), run)

    def arun_pending(
        self,
        *faults: Fault,
        within: float | timedelta | None = None,
        queues: Sequence[str] | None = None,
        concurrency: int = 1,
    ) -> Coroutine[Any, Any, list[RanAttempt]]:
        """Do what `run_pending` does, on the running event loop: tasks can use objects that the test created there.

        A `def` runs in its own thread, as in a worker.
        """
        return self._run(faults, self._options(within, queues, concurrency))

    async def _run(
        self, faults: tuple[Fault, ...], options: PendingOptions, threads: Threads | None = None
    ) -> list[RanAttempt]:
        return await PendingRun(self.client, self._clock, faults, options, threads).run()

    def _options(
        self, within: float | timedelta | None, queues: Sequence[str] | None, concurrency: int
    ) -> PendingOptions:
        span = within.total_seconds() if isinstance(within, timedelta) else math.inf if within is None else within
        return PendingOptions(self._clock.now_us / SECOND_US + span, queues, concurrency)


store = VirtualStore


def run_pending(
    *faults: Fault,
    within: float | timedelta | None = None,
    queues: Sequence[str] | None = None,
    concurrency: int = 1,
) -> list[RanAttempt]:
    """Run all tasks that wait in the store of this test: see VirtualStore.run_pending."""
    return current_store().run_pending(*faults, within=within, queues=queues, concurrency=concurrency)


def arun_pending(
    *faults: Fault,
    within: float | timedelta | None = None,
    queues: Sequence[str] | None = None,
    concurrency: int = 1,
) -> Coroutine[Any, Any, list[RanAttempt]]:
    """Run all tasks that wait in the store of this test, on the running event loop."""
    return current_store().arun_pending(*faults, within=within, queues=queues, concurrency=concurrency)


def current_store() -> VirtualStore:
    """Return the store of the test that runs now."""
    if not _open_stores:
        raise ConfigurationError(
            "run_pending() runs the tasks of a test's own store, and this test has none; use the fixture "
            "`relier_store`, or write `with relier.testing.store():`"
        )
    return _open_stores[-1]


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        "run_pending() was called where an event loop runs, which it would block; write `await arun_pending()`"
    )
