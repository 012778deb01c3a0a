"""Connect to servers from threads. The coroutines here block and never suspend."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import hiredis

from relier.store.connect.address import Address
from relier.store.policy import AttemptError
from relier.store.wire import INCOMPLETE, connect_error, keep_alive, new_reader, not_resp

T = TypeVar("T")
READ_SIZE = 65536
TRUSTED_IDLE = 1.0  # seconds for which an idle connection is trusted without a check


class SyncConnection:
    """Exchange requests and replies over a blocking socket, for one thread at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.generation = 0
        self.idle_since = 0.0
        self.is_open = True
        self._reader = new_reader()
        self._socket: socket.socket | None = sock
        self._used = time.monotonic()

    def usable(self) -> bool:
        """Return whether the connection can be used.

        An idle connection with data to read was closed by the server, or is out of step.
        """
        return self.is_open and (time.monotonic() - self._used < TRUSTED_IDLE or not self._has_data())

    def _has_data(self) -> bool:
        """Return whether there is data to read.

        Use `poll` if it exists, because `select` refuses descriptors of 1024 and above. Under eventlet there is no
        `poll`, but eventlet's own `select` accepts all descriptors.
        """
        if self._socket is None:
            return True
        if not hasattr(select, "poll"):
            return bool(select.select([self._socket], [], [], 0)[0])
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    async def exchange(self, request: bytes, replies: int, seconds: float) -> list[Any]:
        if self._socket is None:
            raise AttemptError("the connection was lost before the call was sent", sent=False)
        try:
            return self._exchange(self._socket, request, replies, seconds)
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise AttemptError("timed out waiting for the reply") from error
            if isinstance(error, OSError):
                raise AttemptError(f"the connection was lost ({error})") from error
            raise

    def _exchange(self, sock: socket.socket, request: bytes, replies: int, seconds: float) -> list[Any]:
        until = time.monotonic() + seconds
        sock.settimeout(seconds)
        sock.sendall(request)
        answer: list[Any] = []
        while len(answer) < replies:
            try:
                reply = self._reader.gets()
            except hiredis.ProtocolError as error:
                raise not_resp(error) from error
            if reply is not INCOMPLETE:
                answer.append(reply)
                continue
            sock.settimeout(max(until - time.monotonic(), 0.001))  # sending has used some of the time
            data = sock.recv(READ_SIZE)
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
    """Give permits to the threads of one process."""

    def __init__(self, size: int) -> None:
        self._semaphore = threading.Semaphore(size)

    async def acquire(self, seconds: float) -> bool:
        return self._semaphore.acquire(timeout=seconds)

    def acquire_nowait(self) -> bool:
        return self._semaphore.acquire(blocking=False)

    def release(self) -> None:
        self._semaphore.release()


class SyncWire:
    """Open connections from threads. The time that the operating system takes to look up a host name is not limited."""

    slots = SyncSlots

    async def connect(self, address: Address, seconds: float) -> SyncConnection:
        try:
            return SyncConnection(open_socket(address, seconds))
        except (OSError, ValueError) as error:
            raise connect_error(address, error) from error

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - over SyncWire nothing suspends

    async def blocking(self, work: Callable[[], T], seconds: float) -> T:
        del seconds  # the work itself observes this limit
        return work()


def open_socket(address: Address, seconds: float) -> socket.socket:
    """Open a socket to a server, over TLS if its address says so."""
    if address.path is not None:
        return _connected(socket.AF_UNIX, address.path, seconds)
    until = time.monotonic() + seconds
    sock = _first_connected(address, until)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(sock)
        if address.tls is None:
            return sock
        sock.settimeout(max(until - time.monotonic(), 0.001))
        return address.tls.context.wrap_socket(sock, server_hostname=address.host)
    except BaseException:
        sock.close()
        raise


def _first_connected(address: Address, until: float) -> socket.socket:
    """Try the addresses of the host name in order, and return the first connection that succeeds.

    Each address gets an equal share of the remaining time. So an address that does not answer leaves time for the
    others, and all attempts together stay within the limit.
    """
    places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    failure = OSError("the host name has no address")
    for tried, (family, _, _, _, place) in enumerate(places):
        share = (until - time.monotonic()) / (len(places) - tried)
        try:
            return _connected(family, place, max(share, 0.001))
        except OSError as error:
            failure = error
    raise failure


def _connected(family: int, place: Any, seconds: float) -> socket.socket:
    sock = socket.socket(family)
    try:
        sock.settimeout(seconds)
        sock.connect(place)
    except BaseException:
        sock.close()
        raise
    return sock


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over SyncWire to its end. It blocks and never suspends, so one step is enough."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise AssertionError("a coroutine suspended over SyncWire")
