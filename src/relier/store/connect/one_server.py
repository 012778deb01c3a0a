"""Talk to one server of the store over a connection of its own, outside the pool: its master, or one of its replicas.

Nothing is retried here: the caller of a backup decides what a failure means.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import hiredis

from relier.errors import RedisConnectionError, StoreReplyError
from relier.settings import Settings
from relier.store.connect.address import Address, target_of
from relier.store.connect.handshake import ConnectionLookupIO, handshake_commands, open_connection
from relier.store.connect.resolvers import resolver_of
from relier.store.master_lookup import Resolver
from relier.store.policy import AttemptError, Deadline
from relier.store.sync_wire import SyncWire, open_socket, run_sync
from relier.store.wire import pack

CHUNK = 1 << 18
LONGEST_LINE = 256  # bytes: the server announces a snapshot, or refuses it, in a short line


class OneServer:
    """Run commands on one server.

    Close the connection after use: an embedded server does not stop while it has clients, and this object is one.
    """

    def __init__(self, settings: Settings, address: Address, resolver: Resolver | None = None) -> None:
        self.address = address
        self._settings = settings
        self._resolver = resolver

    @classmethod
    def master_of(cls, settings: Settings) -> OneServer:
        """Find the master, as every call does. The embedded server is started if it does not run."""
        resolver = resolver_of(target_of(settings), settings, time.monotonic)
        io = ConnectionLookupIO(SyncWire(), settings, Deadline(time.monotonic, settings.redis_deadline))
        try:
            return cls(settings, run_sync(resolver.locate(io)), resolver)
        except AttemptError as error:
            resolver.close()
            raise RedisConnectionError(f"the store cannot be found: {error}; check that the server runs") from error

    def replica(self, host: str, port: int) -> OneServer:
        """Return a replica of this server, reached with the same credentials."""
        return OneServer(self._settings, replace(self.address, host=host, port=port, path=None, must_be_master=False))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._resolver is not None:
            self._resolver.close()

    def command(self, *args: str | int) -> Any:
        """Run one command. Raise StoreReplyError if the server refuses it."""
        deadline = Deadline(time.monotonic, self._settings.redis_deadline)
        try:
            reply = run_sync(self._ask(args, deadline))
        except AttemptError as error:
            raise RedisConnectionError(
                f"no answer to {args[0]} from {self.address}: {error}; check that the server runs"
            ) from error
        if isinstance(reply, hiredis.ReplyError):
            raise StoreReplyError(f"{self.address} refused {args[0]}: {reply}")
        return reply

    async def _ask(self, args: tuple[str | int, ...], deadline: Deadline) -> Any:
        connection = await open_connection(SyncWire(), self.address, self._settings.redis_connect_timeout, deadline)
        try:
            return (await connection.exchange(pack(args), 1, deadline.within(self._settings.redis_read_timeout)))[0]
        finally:
            connection.close()

    def info(self, section: str) -> dict[str, str]:
        lines = self.command("INFO", section).decode("utf-8", "replace").splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def send_snapshot(self, write: Callable[[bytes], Any], seconds: float) -> int:
        """Ask for a snapshot as a replica does, and pass its bytes to `write`. Return their number.

        `seconds`: how long the server may take until it sends the next byte. While it writes the snapshot, it sends
        empty lines. Without the capability `eof` it announces the length.
        """
        commands = [*handshake_commands(replace(self.address, db=0)), ("REPLCONF", "rdb-only", 1)]
        try:
            with open_socket(self.address, self._settings.redis_connect_timeout) as sock:
                sock.settimeout(seconds)
                for command in commands:
                    sock.sendall(pack(command))
                    reply = _line(sock)
                    if reply.startswith(b"-") and command[0] != "REPLCONF":  # unknown before Redis 7: it has no effect
                        raise self._refused(command[0], reply)
                sock.sendall(pack(("SYNC",)))
                return self._receive(sock, write)
        except (OSError, AttemptError) as error:
            raise RedisConnectionError(
                f"{self.address} did not send its snapshot: {error}; check the server's log"
            ) from error

    def _receive(self, sock: socket.socket, write: Callable[[bytes], Any]) -> int:
        while not (announced := _line(sock)):
            pass
        if not announced.startswith(b"$") or not announced[1:].isdigit():
            raise self._refused("SYNC", announced)
        total = left = int(announced[1:])
        while left:
            data = sock.recv(min(left, CHUNK))
            if not data:
                raise ConnectionError(f"it closed the connection after {total - left} of {total} bytes")
            write(data)
            left -= len(data)
        return total

    def _refused(self, command: object, reply: bytes) -> StoreReplyError:
        return StoreReplyError(f"{self.address} refused {command}: {reply.decode(errors='replace').lstrip('-')}")


def _line(sock: socket.socket) -> bytes:
    """Read one line, byte by byte: what follows it is not a line. Return it without its end."""
    line = b""
    while not line.endswith(b"\n"):
        byte = sock.recv(1)
        if not byte or len(line) > LONGEST_LINE:
            raise ConnectionError("the connection was closed" if not byte else "the reply is not a line")
        line += byte
    return line.rstrip(b"\r\n")
