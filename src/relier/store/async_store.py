"""Provide the store for event loops. Calls made in one turn of the loop are sent together."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from relier import background
from relier.errors import RedisConnectionError, RelierError, StoreError
from relier.settings import Settings
from relier.store.async_wire import AsyncConnection, AsyncWire
from relier.store.batch import Request, RequestBatch, bounded_parts, pipelines_of, request_of
from relier.store.call import Call, result_or_error
from relier.store.connect.address import target_of
from relier.store.connect.probe import Capabilities
from relier.store.connect.resolvers import resolver_of
from relier.store.core import Core
from relier.store.master_lookup import MasterLookup
from relier.store.policy import AttemptError, Clock
from relier.store.scripts import Scripts

T = TypeVar("T")


class LoopClient:
    """Hold one event loop's part of the store: its core, and the requests made since its last turn."""

    def __init__(self, core: Core, loop: asyncio.AbstractEventLoop) -> None:
        self.core = core
        self.pid = os.getpid()
        self._loop = loop
        self._waiting: list[Request] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_flight: set[AsyncConnection] = set()
        self._ended = False
        self._idle: asyncio.Future[None] | None = None
        self._until_loop_ends = self._close_with_loop()

    async def start(self) -> None:
        """Arrange that the loop closes the connections when it shuts down its asynchronous generators."""
        await anext(self._until_loop_ends)

    def submit(self, request: Request) -> asyncio.Future[Any]:
        """Queue a request for this turn's pipeline. Return a future for its answer; errors are values too."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        request.waiter = self._loop.create_future()
        self._waiting.append(request)
        return request.waiter

    async def finish(self) -> None:
        """Let calls in flight end, each within its deadline, then close the connections."""
        self._flush()
        while self._tasks or self._in_flight:
            self._idle = self._loop.create_future()
            await self._idle
        await self._until_loop_ends.aclose()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for requests in pipelines_of(request for request in waiting if not _abandoned(request)):
            batch = self.core.batch(requests)
            connection = self.core.ready_connection(batch)
            if isinstance(connection, AsyncConnection):
                self._in_flight.add(connection)
                request, replies = batch.encode(0.0)
                seconds = batch.deadline.within(self.core.read_timeout)
                connection.start(request, replies, seconds, partial(self._on_outcome, batch, connection))
            else:
                self._continue_in_task(batch, None)

    def _on_outcome(self, batch: RequestBatch, connection: AsyncConnection, outcome: list[Any] | AttemptError) -> None:
        self._in_flight.discard(connection)
        self.core.give_back(connection)
        failure = self.core.absorb_outcome(batch, connection, outcome)
        if failure is None:
            self.core.finish(batch, 1)
            self.core.report_batch(batch)
            _set_results(batch)
            self._notify_idle()
        else:
            self._continue_in_task(batch, failure)

    def _continue_in_task(self, batch: RequestBatch, failure: AttemptError | None) -> None:
        """Continue a batch that needs waiting, retrying or confirming in a task that no caller can cancel."""
        if self._ended:
            _cancel(batch)
            return
        task = background.start(self._loop, self._run_batch(batch, failure))
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._notify_idle()

    def _notify_idle(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _run_batch(self, batch: RequestBatch, failure: AttemptError | None) -> None:
        try:
            await self.core.run_batch(batch, failure)
        except Exception as error:  # noqa: BLE001 - nobody awaits this task: the callers must get every error
            _fail_all(batch, error)
        except BaseException:
            _cancel(batch)
            raise
        _set_results(batch)

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._ended = True
            self.core.close()
            for connection in self._in_flight:
                connection.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _abandoned(request: Request) -> bool:
    return request.waiter is None or request.waiter.done()


def _cancel(batch: RequestBatch) -> None:
    for request in batch.requests:
        if request.waiter is not None:
            request.waiter.cancel()


def _fail_all(batch: RequestBatch, error: Exception) -> None:
    for request in batch.requests:
        request.answer = StoreError(
            f"the call to the store failed with an unexpected {type(error).__name__}: {error}; it may have run, and "
            f"repeating it is safe; if the error persists, report it with the traceback"
        )
        request.answer.__cause__ = error


def _set_results(batch: RequestBatch) -> None:
    for request in batch.requests:
        if request.waiter is not None and not request.waiter.done():
            request.waiter.set_result(request.answer)


class AsyncStore:
    """Run calls from any number of event loops. Each loop has its own connections."""

    def __init__(self, settings: Settings, scripts: Scripts, *, clock: Clock = time.monotonic) -> None:
        self._settings = settings
        self._scripts = scripts
        self._clock = clock
        self._target = target_of(settings)
        self._lookup = MasterLookup(resolver_of(self._target, settings, clock), clock)
        self._clients: dict[asyncio.AbstractEventLoop, LoopClient] = {}
        self._inherited: list[LoopClient] = []
        self._report: Callable[[float, Sequence[str]], None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"AsyncStore({self._target.redacted_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def run(self, call: Call[T]) -> T:
        """Run one call, in one pipeline with the other calls of this turn of the loop."""
        request = request_of(call, self._scripts)
        answer = await (await self._client()).submit(request)
        if isinstance(answer, RelierError):
            raise answer
        return call.read(answer)

    async def run_many(self, calls: Iterable[Call[T]]) -> list[T | RelierError]:
        """Run calls, a bounded number at a time. Return an answer for each, in order, with errors as values."""
        client = await self._client()
        answers: list[T | RelierError] = []
        for window in bounded_parts(calls, self._scripts):
            submitted = [(call, client.submit(request)) for call, request in window]
            answers += [result_or_error(call, await future) for call, future in submitted]
        return answers

    async def command(self, *args: Any, retry: bool = False) -> Any:
        """Run a raw command, for probes, reads and tests. Once sent, it is repeated only if `retry` is true."""
        return await (await self._client()).core.command(*args, retry=retry)

    async def wait_for_bell(self, keys: list[str], timeout: float) -> bytes | None:  # noqa: ASYNC109 - the server waits
        """Wait at most 1 s until a key's doorbell rings. Return that key, or None.

        The wait uses its own connection. Cancelling the wait closes it.
        """
        return await (await self._client()).core.wait_for_bell(keys, timeout)

    async def wait_for_entries(self, positions: Mapping[str, str], seconds: float) -> None:
        """Wait at most 1 s until a stream has an entry after its position, on a separate connection."""
        await (await self._client()).core.wait_for_entries(positions, seconds)

    async def probe(self) -> Capabilities:
        """Return what the server can do now. Raise ConfigurationError if the server must not be used."""
        return await (await self._client()).core.probe()

    @property
    def breaker_open(self) -> bool:
        """Return whether the last calls of a loop have failed, so that calls fail at once."""
        return any(client.core.breaker_open for client in list(self._clients.values()))

    def watch_calls(self, report: Callable[[float, Sequence[str]], None]) -> None:
        """Call `report` with the seconds and the kinds of errors of every batch from now on."""
        self._report = report
        for client in list(self._clients.values()):
            client.core.report = report

    async def aclose(self) -> None:
        """Let this loop's calls end, close its connections, and stop being a client of the embedded server."""
        self._closed = True
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None and client.pid == os.getpid():
            await client.finish()
        self._drop_closed_loops()
        self._lookup.resolver.close()

    async def _client(self) -> LoopClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is not None and client.pid == os.getpid():
            return client
        if self._closed:
            raise RedisConnectionError(f"nothing was sent: {self!r} is closed; create a new store")
        if client is not None:
            # A forked child on its parent's loop. The sockets belong to the parent, so keep them open.
            self._inherited.append(client)
        self._drop_closed_loops()
        core = Core(self._settings, self._target, self._lookup, AsyncWire(loop), self._clock)
        core.report = self._report
        client = self._clients[loop] = LoopClient(core, loop)
        await client.start()
        return client

    def _drop_closed_loops(self) -> None:
        for loop, client in list(self._clients.items()):
            if loop.is_closed() and client.pid == os.getpid():
                self._clients.pop(loop, None)  # another thread's loop may have removed it
                client.core.close()
