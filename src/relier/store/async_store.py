"""Provide the store for event loops. Calls made in one turn of the loop are sent together."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from relier import background
from relier.errors import RedisConnectionError, RelierError, StoreError
from relier.settings import Settings
from relier.store.async_wire import AsyncConnection, AsyncWire
from relier.store.batch import Batch, Request, pipelines, request_of, windows
from relier.store.call import Call, parsed
from relier.store.connect.address import target_of
from relier.store.connect.probe import Capabilities
from relier.store.connect.resolvers import resolver_of
from relier.store.core import Core
from relier.store.policy import AttemptError, Clock
from relier.store.route import Route
from relier.store.scripts import Scripts

T = TypeVar("T")


class Lane:
    """Hold one event loop's part of the store: its core, and the requests made since its last turn."""

    def __init__(self, core: Core, loop: asyncio.AbstractEventLoop) -> None:
        self.core = core
        self.pid = os.getpid()
        self._loop = loop
        self._waiting: list[Request] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._flying: set[AsyncConnection] = set()
        self._ended = False
        self._landed: asyncio.Future[None] | None = None
        self._until_loop_ends = self._close_with_loop()

    async def start(self) -> None:
        """Arrange that the loop closes the connections when it shuts down its asynchronous generators."""
        await anext(self._until_loop_ends)

    def submit(self, request: Request) -> asyncio.Future[Any]:
        """Queue a request for this turn's pipeline. Return a future for its answer; errors are values too."""
        if not self._waiting:
            self._loop.call_soon(self._depart)
        request.waiter = self._loop.create_future()
        self._waiting.append(request)
        return request.waiter

    async def finish(self) -> None:
        """Let calls in flight end, each within its deadline, then close the connections."""
        self._depart()
        while self._tasks or self._flying:
            self._landed = self._loop.create_future()
            await self._landed
        await self._until_loop_ends.aclose()

    def _depart(self) -> None:
        waiting, self._waiting = self._waiting, []
        for requests in pipelines(request for request in waiting if not _abandoned(request)):
            batch = self.core.batch(requests)
            connection = self.core.ready_connection(batch)
            if isinstance(connection, AsyncConnection):
                self._flying.add(connection)
                request, replies = batch.encode(0.0)
                seconds = batch.deadline.within(self.core.read_timeout)
                connection.start(request, replies, seconds, partial(self._arrived, batch, connection))
            else:
                self._carry_on(batch, None)

    def _arrived(self, batch: Batch, connection: AsyncConnection, outcome: list[Any] | AttemptError) -> None:
        self._flying.discard(connection)
        self.core.give(connection)
        trouble = self.core.settle(batch, connection, outcome)
        if trouble is None:
            self.core.finish(batch, 1)
            _deliver(batch)
            self._land()
        else:
            self._carry_on(batch, trouble)

    def _carry_on(self, batch: Batch, trouble: AttemptError | None) -> None:
        """Continue a batch that needs waiting, retrying or confirming in a task that no caller can cancel."""
        if self._ended:
            _cancel(batch)
            return
        task = background.start(self._loop, self._carry(batch, trouble))
        self._tasks.add(task)
        task.add_done_callback(self._carried)

    def _carried(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._land()

    def _land(self) -> None:
        if self._landed is not None and not self._landed.done():
            self._landed.set_result(None)

    async def _carry(self, batch: Batch, trouble: AttemptError | None) -> None:
        try:
            await self.core.carry(batch, trouble)
        except Exception as error:  # noqa: BLE001 - nobody awaits this task: the callers must get every error
            _break_off(batch, error)
        except BaseException:
            _cancel(batch)
            raise
        _deliver(batch)

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._ended = True
            self.core.close()
            for connection in self._flying:
                connection.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _abandoned(request: Request) -> bool:
    return request.waiter is None or request.waiter.done()


def _cancel(batch: Batch) -> None:
    for request in batch.requests:
        if request.waiter is not None:
            request.waiter.cancel()


def _break_off(batch: Batch, error: Exception) -> None:
    for request in batch.requests:
        request.answer = StoreError(
            f"the call to the store was broken off by {type(error).__name__}: {error}; it may have run, and repeating "
            f"it is safe; where that does not help, report the traceback"
        )
        request.answer.__cause__ = error


def _deliver(batch: Batch) -> None:
    for request in batch.requests:
        if request.waiter is not None and not request.waiter.done():
            request.waiter.set_result(request.answer)


class AsyncStore:
    """Run calls from any number of event loops. Each loop has connections of its own."""

    def __init__(self, settings: Settings, scripts: Scripts, *, clock: Clock = time.monotonic) -> None:
        self._settings = settings
        self._scripts = scripts
        self._clock = clock
        self._target = target_of(settings)
        self._route = Route(resolver_of(self._target, settings, clock), clock)
        self._lanes: dict[asyncio.AbstractEventLoop, Lane] = {}
        self._inherited: list[Lane] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"AsyncStore({self._target.shown!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def run(self, call: Call[T]) -> T:
        """Run one call, in one pipeline with the other calls of this turn of the loop."""
        request = request_of(call, self._scripts)
        answer = await (await self._lane()).submit(request)
        if isinstance(answer, RelierError):
            raise answer
        return call.read(answer)

    async def run_many(self, calls: Iterable[Call[T]]) -> list[T | RelierError]:
        """Run calls, a bounded number at a time. Return an answer for each, in order, with errors as values."""
        lane = await self._lane()
        answers: list[T | RelierError] = []
        for window in windows(calls, self._scripts):
            submitted = [(call, lane.submit(request)) for call, request in window]
            answers += [parsed(call, await future) for call, future in submitted]
        return answers

    async def command(self, *args: Any, retry: bool = False) -> Any:
        """Run a raw command, for probes, reads and tests. Once sent, it is repeated only if `retry` is true."""
        return await (await self._lane()).core.command(*args, retry=retry)

    async def wait_for_bell(self, keys: list[str], timeout: float) -> bytes | None:  # noqa: ASYNC109 - the server waits
        """Wait at most 1 s until a key's doorbell rings. Return that key, or None.

        The wait uses a connection of its own. Cancelling the wait closes it.
        """
        return await (await self._lane()).core.wait_for_bell(keys, timeout)

    async def probe(self) -> Capabilities:
        """Return what the server can do now. Raise ConfigurationError if the server must not be used."""
        return await (await self._lane()).core.probe()

    async def aclose(self) -> None:
        """Let this loop's calls end, close its connections, and stop being a client of the embedded server."""
        self._closed = True
        lane = self._lanes.pop(asyncio.get_running_loop(), None)
        if lane is not None and lane.pid == os.getpid():
            await lane.finish()
        self._drop_closed_loops()
        self._route.resolver.close()

    async def _lane(self) -> Lane:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is not None and lane.pid == os.getpid():
            return lane
        if self._closed:
            raise RedisConnectionError(f"{self!r} is closed; nothing was sent; make a new store")
        if lane is not None:
            # A forked child on its parent's loop. The sockets belong to the parent, so keep them open.
            self._inherited.append(lane)
        self._drop_closed_loops()
        core = Core(self._settings, self._target, self._route, AsyncWire(loop), self._clock)
        lane = self._lanes[loop] = Lane(core, loop)
        await lane.start()
        return lane

    def _drop_closed_loops(self) -> None:
        for loop, lane in list(self._lanes.items()):
            if loop.is_closed() and lane.pid == os.getpid():
                self._lanes.pop(loop, None)  # another thread's loop may have removed it
                lane.core.close()
