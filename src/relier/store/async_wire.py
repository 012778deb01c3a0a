"""Connect to servers from an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import hiredis

from relier import background
from relier.store.connect.address import Address
from relier.store.policy import AttemptError
from relier.store.wire import INCOMPLETE, connect_error, keep_alive, new_reader, not_resp

T = TypeVar("T")
EXTRA_TIME = 0.25  # seconds
Done = Callable[["list[Any] | AttemptError"], None]


class AsyncConnection(asyncio.Protocol):
    """Exchange requests and replies through asyncio. Replies are parsed as bytes arrive; the last one ends the wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.generation = 0
        self.idle_since = 0.0
        self.is_open = False
        self._loop = loop
        self._reader = new_reader()
        self._transport: asyncio.Transport | None = None
        self._done: Done | None = None
        self._replies: list[Any] = []
        self._expected = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        replies = self._replies
        try:
            self._reader.feed(data)
            for _ in range(self._expected - len(replies)):
                reply = self._reader.gets()
                if reply is INCOMPLETE:
                    return
                replies.append(reply)
        except hiredis.ProtocolError as error:
            self._fail(not_resp(error))
            return
        done, self._done = self._done, None
        if done is None or self._reader.has_data():
            self.close()
        if done is not None:
            done(replies)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(AttemptError(f"the connection was lost ({exc or 'closed by the server'})"))

    def usable(self) -> bool:
        return self.is_open

    async def exchange(self, request: bytes, replies: int, seconds: float) -> list[Any]:
        waiter: asyncio.Future[list[Any]] = self._loop.create_future()
        self.start(request, replies, seconds, partial(_wake, waiter))
        try:
            return await waiter
        except BaseException:
            self._done = None
            self.close()
            raise

    def start(self, request: bytes, replies: int, seconds: float, done: Done) -> None:
        """Start an exchange without a coroutine. `done` is called once, with the replies or the error."""
        if self._transport is None:
            done(AttemptError("the connection was lost before the call was sent", sent=False))
            return
        self._done = done
        self._replies, self._expected = [], replies
        self._due = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._due:
            self._set_timer()
        self._transport.write(request)

    def _set_timer(self) -> None:
        """Set the timer for `_due`. One timer serves many exchanges, because it checks `_due` again when it fires."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due, self._check_time)

    def _check_time(self) -> None:
        self._timer = None
        if self._done is None:
            return
        if self._loop.time() < self._due:
            self._set_timer()
        else:
            self._fail(AttemptError("timed out waiting for the reply"))

    def close(self) -> None:
        transport, self._transport = self._transport, None
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if transport is None:
            return
        if self._loop.is_closed():
            _close_without_loop(transport)
        else:
            transport.abort()

    def _fail(self, failure: AttemptError) -> None:
        self.close()
        done, self._done = self._done, None
        if done is not None:
            done(failure)


def _close_without_loop(transport: asyncio.Transport) -> None:
    """Close a transport whose loop is already closed. asyncio has no public API for this.

    uvloop closes open transports by itself, with a ResourceWarning. To avoid that, shut its loops down as asyncio.run
    does, or close the store first.
    """
    inner = getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)
    lose = getattr(inner, "_call_connection_lost", None)
    if lose is not None:
        with contextlib.suppress(RuntimeError):
            transport.abort()
        lose(None)


def _wake(waiter: asyncio.Future[list[Any]], outcome: list[Any] | AttemptError) -> None:
    if waiter.done():
        return
    if isinstance(outcome, AttemptError):
        waiter.set_exception(outcome)
    else:
        waiter.set_result(outcome)


class AsyncSlots:
    """Give permits to the coroutines of one loop, in order of arrival."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self, seconds: float) -> bool:
        if self.acquire_nowait():
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # the permit arrived while we gave up: pass it on
                self.release()
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def acquire_nowait(self) -> bool:
        if not self._free:
            return False
        self._free -= 1
        return True

    def release(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class AsyncWire:
    """Open connections on one event loop."""

    slots = AsyncSlots

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def connect(self, address: Address, seconds: float) -> AsyncConnection:
        def fresh() -> AsyncConnection:
            return AsyncConnection(self._loop)

        try:
            async with asyncio.timeout(seconds):
                if address.path is not None:
                    return (await self._loop.create_unix_connection(fresh, address.path))[1]
                context = address.tls.context if address.tls else None
                transport, connection = await self._loop.create_connection(
                    fresh, address.host, address.port, ssl=context
                )
        except (OSError, ValueError) as error:
            raise connect_error(address, error) from error
        keep_alive(transport.get_extra_info("socket"))
        return connection

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def blocking(self, work: Callable[[], T], seconds: float) -> T:
        """Run `work` in a thread, for at most `seconds` plus EXTRA_TIME.

        The work has the same time limit of `seconds`, and its own error explains best why that time was not enough. The
        extra time lets it raise that error.
        """
        begun = threading.Event()

        def begin() -> T:
            begun.set()
            return work()

        thread = background.start(asyncio.get_running_loop(), asyncio.to_thread(begin))
        try:
            await asyncio.wait([thread], timeout=seconds)
            if begun.is_set():
                await asyncio.wait([thread], timeout=EXTRA_TIME)
            if thread.done():
                return thread.result()
        finally:
            thread.cancel()
        what = "blocking work did not finish" if begun.is_set() else "no thread was free for blocking work"
        raise AttemptError(f"{what} within {seconds:.3g} s", sent=False)
