"""Define the contract of the two wires, for event loops and for threads. All code above is written once, as coroutines.

Over `AsyncWire` those coroutines run on a loop. Over `SyncWire` every call blocks instead of suspending, so `run_sync`
can run each coroutine to its end in one step, without an event loop.

The protocol is RESP2: hiredis packs and parses, replies are bytes, error replies are `hiredis.ReplyError` values.
A connection whose exchange did not end properly is closed, so no later request can read an earlier one's reply.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import hiredis

from relier.errors import ConfigurationError, StoreSetupError
from relier.store.connect.address import Address
from relier.store.policy import AttemptError

T = TypeVar("T")
INCOMPLETE = object()  # what hiredis returns while a reply is incomplete


pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command


class Connection(Protocol):
    """Represent one connection, which does one exchange at a time."""

    generation: int
    idle_since: float
    is_open: bool

    def usable(self) -> bool:
        """Return False if the server closed the idle connection, or sent unexpected data on it."""

    async def exchange(self, request: bytes, replies: int, seconds: float) -> list[Any]:
        """Send the request and return that many replies. On failure, raise AttemptError and close the connection."""

    def close(self) -> None: ...


class Slots(Protocol):
    """Limit the number of connections in use at the same time."""

    async def acquire(self, seconds: float) -> bool: ...
    def acquire_nowait(self) -> bool: ...
    def release(self) -> None: ...


class Wire(Protocol):
    """Define what the store needs from the outside world."""

    async def connect(self, address: Address, seconds: float) -> Connection: ...
    async def sleep(self, seconds: float) -> None: ...
    async def blocking(self, work: Callable[[], T], seconds: float) -> T: ...
    def slots(self, size: int) -> Slots: ...


def new_reader() -> hiredis.Reader:
    return hiredis.Reader(notEnoughData=INCOMPLETE)


def not_resp(error: Exception) -> AttemptError:
    return AttemptError(f"the reply is not valid RESP ({error})")


def connect_error(address: Address, error: OSError | ValueError) -> Exception:
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreSetupError(
            f"cannot verify the TLS certificate of {address}: {error.verify_message}; name its CA in RELIER_REDIS_URL "
            f"with ?ssl_ca_certs=FILE, or, only on a network that you trust, use ?ssl_cert_reqs=none"
        )
    if isinstance(error, ValueError):  # includes UnicodeError, for a name that cannot be looked up
        return ConfigurationError(
            f"cannot connect to {address}: the address is not valid ({error}); correct RELIER_REDIS_URL"
        )
    why = "timed out" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return AttemptError(f"cannot connect to {address}: {why}", sent=False)


def keep_alive(sock: socket.socket | None) -> None:
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
