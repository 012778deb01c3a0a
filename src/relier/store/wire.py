"""Sockets, twice: for an event loop and for threads. Everything above is written once, as coroutines.

Over `AsyncWire` those coroutines run in a loop. Over `SyncWire` nothing they await ever suspends: it blocks instead,
and `complete` runs them to their end in one step, without an event loop.

The protocol is RESP2: hiredis packs and parses, replies are bytes, error replies are `hiredis.ReplyError` values.
A connection whose exchange did not end as it should is closed, so no later request can read an earlier one's reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import hiredis

from relier.errors import ConfigurationError, StoreReplyError
from relier.store.address import Address
from relier.store.policy import AttemptError

T = TypeVar("T")
MORE = object()  # hiredis has no whole reply yet
CHUNK = 65536
FRESH = 1.0  # seconds in which an idle connection is trusted without a look

Done = Callable[["list[Any] | AttemptError"], None]

pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command


class Connection(Protocol):
    """One connection; one exchange at a time."""

    generation: int
    idle_since: float
    is_open: bool

    def usable(self) -> bool:
        """False when the other side hung up, or sent what nobody asked for, while the connection was idle."""

    async def exchange(self, request: bytes, replies: int, seconds: float) -> list[Any]:
        """Send, and return that many replies, or raise AttemptError and be closed."""

    def close(self) -> None: ...


class Slots(Protocol):
    """Permits: at most so many connections at once."""

    async def acquire(self, seconds: float) -> bool: ...
    def acquire_nowait(self) -> bool: ...
    def release(self) -> None: ...


class Wire(Protocol):
    """What the store needs of the outside world."""

    async def connect(self, address: Address, seconds: float) -> Connection: ...
    async def sleep(self, seconds: float) -> None: ...
    async def blocking(self, work: Callable[[], T], seconds: float) -> T: ...
    def slots(self, size: int) -> Slots: ...


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over SyncWire: it blocks and never suspends, so one step is the whole of it."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise AssertionError("a coroutine suspended over SyncWire")


def _reader() -> hiredis.Reader:
    return hiredis.Reader(notEnoughData=MORE)


def _garbage(error: Exception) -> AttemptError:
    return AttemptError(f"the answer is not RESP ({error})", StoreReplyError)


def _not_connected(address: Address, error: OSError) -> Exception:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConfigurationError(
            f"the TLS certificate of {address} is not trusted: {error.verify_message}; give its authority with "
            f"?ssl_ca_certs=file, or, only on a network you trust, ?ssl_cert_reqs=none"
        )
    why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return AttemptError(f"cannot connect to {address}: {why}", sent=False)


class AsyncConnection(asyncio.Protocol):
    """The asyncio side: replies are parsed as bytes arrive, and wake the waiter once all are there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.generation = 0
        self.idle_since = 0.0
        self.is_open = False
        self._loop = loop
        self._reader = _reader()
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
                if reply is MORE:
                    return
                replies.append(reply)
        except hiredis.ProtocolError as error:
            self._fail(_garbage(error))
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
        """The same without a coroutine: `done` is called once, with the replies or the trouble."""
        if self._transport is None:
            done(AttemptError("the connection was lost before the request", sent=False))
            return
        self._done = done
        self._replies, self._expected = [], replies
        self._due = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._due:
            self._set_timer()
        self._transport.write(request)

    def _set_timer(self) -> None:
        """One timer serves many exchanges: it looks at `_due` when it fires."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due, self._look_at_time)

    def _look_at_time(self) -> None:
        self._timer = None
        if self._done is None:
            return
        if self._loop.time() < self._due:
            self._set_timer()
        else:
            self._fail(AttemptError("no answer in time"))

    def close(self) -> None:
        transport, self._transport = self._transport, None
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if transport is None:
            return
        try:
            transport.abort()
        except RuntimeError:  # the loop was closed first and can no longer do the rest
            _close_without_loop(transport)

    def _fail(self, trouble: AttemptError) -> None:
        self.close()
        done, self._done = self._done, None
        if done is not None:
            done(trouble)


def _close_without_loop(transport: asyncio.Transport) -> None:
    """Do what a closed loop did not get to do. asyncio has no public way; where this fails too, it warns as usual."""
    inner = getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)
    lose = getattr(inner, "_call_connection_lost", None)
    if lose is not None:
        lose(None)


def _wake(waiter: asyncio.Future[list[Any]], outcome: list[Any] | AttemptError) -> None:
    if waiter.done():
        return
    if isinstance(outcome, AttemptError):
        waiter.set_exception(outcome)
    else:
        waiter.set_result(outcome)


class AsyncSlots:
    """Permits for the coroutines of one loop, in order of arrival."""

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
            if turn.done() and not turn.cancelled():  # the permit came as we left: hand it on
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
    """The wire of one event loop."""

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
        except OSError as error:
            raise _not_connected(address, error) from error
        _keep_alive(transport.get_extra_info("socket"))
        return connection

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def blocking(self, work: Callable[[], T], seconds: float) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.to_thread(work)
        except TimeoutError as error:
            raise AttemptError(f"no thread was free within {seconds:.3g} s", sent=False) from error


class SyncConnection:
    """The blocking side, for one thread at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.generation = 0
        self.idle_since = 0.0
        self.is_open = True
        self._reader = _reader()
        self._socket: socket.socket | None = sock
        self._used = time.monotonic()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def usable(self) -> bool:
        """An idle connection with something to read was closed by the server, or is out of step."""
        return self.is_open and (time.monotonic() - self._used < FRESH or not self._poll.poll(0))

    async def exchange(self, request: bytes, replies: int, seconds: float) -> list[Any]:
        if self._socket is None:
            raise AttemptError("the connection was lost before the request", sent=False)
        try:
            return self._exchange(self._socket, request, replies, seconds)
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise AttemptError("no answer in time") from error
            if isinstance(error, OSError):
                raise AttemptError(f"the connection was lost ({error})") from error
            raise

    def _exchange(self, sock: socket.socket, request: bytes, replies: int, seconds: float) -> list[Any]:
        until = time.monotonic() + seconds
        sock.settimeout(seconds)
        sock.sendall(request)
        answer: list[Any] = []
        first = True
        while len(answer) < replies:
            try:
                reply = self._reader.gets()
            except hiredis.ProtocolError as error:
                raise _garbage(error) from error
            if reply is not MORE:
                answer.append(reply)
                continue
            if not first:
                sock.settimeout(max(until - time.monotonic(), 0.001))
            first = False
            data = sock.recv(CHUNK)
            if not data:
                raise AttemptError("the connection was lost (closed by the server)")
            self._reader.feed(data)
        self._used = time.monotonic()
        if self._reader.has_data():
            self.close()
        return answer

    def close(self) -> None:
        sock, self._socket = self._socket, None
        self.is_open = False
        if sock is not None:
            sock.close()


class SyncSlots:
    """Permits for the threads of one process."""

    def __init__(self, size: int) -> None:
        self._semaphore = threading.Semaphore(size)

    async def acquire(self, seconds: float) -> bool:
        return self._semaphore.acquire(timeout=seconds)

    def acquire_nowait(self) -> bool:
        return self._semaphore.acquire(blocking=False)

    def release(self) -> None:
        self._semaphore.release()


class SyncWire:
    """The wire of threads. It does not bound the time the operating system takes to look up a host name."""

    slots = SyncSlots

    async def connect(self, address: Address, seconds: float) -> SyncConnection:
        try:
            return SyncConnection(_open(address, seconds))
        except OSError as error:
            raise _not_connected(address, error) from error

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - over SyncWire nothing suspends

    async def blocking(self, work: Callable[[], T], seconds: float) -> T:
        del seconds  # the work keeps to it
        return work()


def _open(address: Address, seconds: float) -> socket.socket:
    if address.path is None:
        sock = socket.create_connection((address.host, address.port), seconds)
    else:
        sock = socket.socket(socket.AF_UNIX)
    try:
        if address.path is not None:
            sock.settimeout(seconds)
            sock.connect(address.path)
            return sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _keep_alive(sock)
        return address.tls.context.wrap_socket(sock, server_hostname=address.host) if address.tls else sock
    except BaseException:
        sock.close()
        raise


def _keep_alive(sock: socket.socket | None) -> None:
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
