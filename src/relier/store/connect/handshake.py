"""Open a connection and send the commands that must precede the first request: AUTH, SELECT, ROLE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hiredis import ReplyError

from relier.errors import StoreReadOnlyError, StoreSetupError
from relier.settings import Settings
from relier.store.connect.address import Address
from relier.store.policy import AttemptError, Deadline
from relier.store.replies import failure_of
from relier.store.wire import Connection, Wire, pack


def handshake_commands(address: Address) -> list[tuple[Any, ...]]:
    """Return the commands that a server needs before the first request."""
    commands: list[tuple[Any, ...]] = []
    if address.password is not None:
        commands.append(("AUTH", address.user, address.password) if address.user else ("AUTH", address.password))
    if address.db:
        commands.append(("SELECT", address.db))
    if address.must_be_master:
        commands.append(("ROLE",))
    return commands


async def open_connection(wire: Wire, address: Address, connect_timeout: float, deadline: Deadline) -> Connection:
    """Open a connection, send AUTH and SELECT as needed, and behind Sentinel check that the server is a master."""
    connection = await wire.connect(address, deadline.within(connect_timeout))
    commands = handshake_commands(address)
    if not commands:
        return connection
    request = b"".join(map(pack, commands))
    try:
        replies = await connection.exchange(request, len(commands), deadline.within(connect_timeout))
        _check_replies(address, commands, replies)
    except AttemptError as failure:
        connection.close()
        failure.sent = False
        raise
    except BaseException:
        connection.close()
        raise
    return connection


def _check_replies(address: Address, commands: list[tuple[Any, ...]], replies: list[Any]) -> None:
    for command, reply in zip(commands, replies, strict=True):
        if isinstance(reply, ReplyError):
            failure = failure_of(reply)
            if failure.retry:
                raise failure
            raise StoreSetupError(
                f"the store at {address} refused {command[0]}: {reply}; "
                f"check the user, the password and the database in RELIER_REDIS_URL"
            )
        if command[0] == "ROLE" and reply[0] != b"master":
            raise AttemptError(f"{address} is a {reply[0].decode()}, not a master", StoreReadOnlyError)


class ConnectionLookupIO:
    """Ask single servers for the resolver, each over its own connection."""

    def __init__(self, wire: Wire, settings: Settings, deadline: Deadline) -> None:
        self._wire = wire
        self._settings = settings
        self._deadline = deadline
        self.left = deadline.left

    async def ask(self, address: Address, *command: str, patience: float | None = None) -> Any:
        timeout = self._settings.redis_connect_timeout if patience is None else patience
        connection = await open_connection(self._wire, address, timeout, self._deadline)
        try:
            return (await connection.exchange(pack(command), 1, self._deadline.within(timeout)))[0]
        finally:
            connection.close()

    async def blocking(self, work: Callable[[], str]) -> str:
        return await self._wire.blocking(work, self._deadline.left())
