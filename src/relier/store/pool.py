"""Pool the connections of one loop or one process: last in, first out, limited in number, waits end at a deadline."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from hiredis import ReplyError

from relier.errors import StoreReadOnlyError, StoreSetupError
from relier.settings import Settings
from relier.store.address import Address
from relier.store.policy import AttemptError, Clock, Deadline
from relier.store.replies import trouble_of
from relier.store.resolve import Route
from relier.store.wire import Connection, Wire, pack

IDLE_LIFE = 30.0  # seconds after which an idle connection above the minimum is closed


def greeting(address: Address) -> list[tuple[Any, ...]]:
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
    commands = greeting(address)
    if not commands:
        return connection
    request = b"".join(map(pack, commands))
    try:
        replies = await connection.exchange(request, len(commands), deadline.within(connect_timeout))
        _check_greeting(address, commands, replies)
    except AttemptError as trouble:
        connection.close()
        trouble.sent = False
        raise
    except BaseException:
        connection.close()
        raise
    return connection


def _check_greeting(address: Address, commands: list[tuple[Any, ...]], replies: list[Any]) -> None:
    for command, reply in zip(commands, replies, strict=True):
        if isinstance(reply, ReplyError):
            trouble = trouble_of(reply)
            if trouble.again:
                raise trouble
            raise StoreSetupError(
                f"the store at {address} refused {command[0]}: {reply}; "
                f"check the user, the password and the database in RELIER_REDIS_URL"
            )
        if command[0] == "ROLE" and reply[0] != b"master":
            raise AttemptError(f"{address} is not a master but a {reply[0].decode()}", StoreReadOnlyError)


class Pool:
    """Hold connections to the route's master."""

    def __init__(self, wire: Wire, route: Route, settings: Settings, clock: Clock) -> None:
        self._wire = wire
        self._route = route
        self._settings = settings
        self._clock = clock
        self._slots = wire.slots(settings.redis_pool_size)
        self._idle: deque[Connection] = deque()
        self._closed = False

    async def take(self, deadline: Deadline) -> Connection:
        """Return an idle connection of the current generation, or a new one. Wait for a slot until the deadline."""
        if not await self._slots.acquire(deadline.left()):
            raise AttemptError(
                f"all {self._settings.redis_pool_size} connections stayed busy (RELIER_REDIS_POOL_SIZE)",
                again=False,
                elsewhere=False,
                sent=False,
            )
        try:
            return await self._find(deadline)
        except BaseException:
            self._slots.release()
            raise

    def take_nowait(self) -> Connection | None:
        """Return an idle connection, or None if that would need waiting."""
        if self._route.known() is None or not self._idle or not self._slots.acquire_nowait():
            return None
        connection = self._idle.pop()
        if connection.generation == self._route.generation and connection.usable():
            return connection
        connection.close()
        self._slots.release()
        return None

    def give(self, connection: Connection) -> None:
        """Return a connection to the pool. A connection that is closed or of a past generation is not kept."""
        now = self._clock()
        if self._closed or connection.generation != self._route.generation or not connection.is_open:
            connection.close()
        else:
            connection.idle_since = now
            self._idle.append(connection)
            if len(self._idle) > self._settings.redis_pool_idle and self._idle[0].idle_since < now - IDLE_LIFE:
                self._idle.popleft().close()
        self._slots.release()

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    async def _find(self, deadline: Deadline) -> Connection:
        address = self._route.known() or await self._route.find(PoolScout(self._wire, self._settings, deadline))
        generation = self._route.generation
        while self._idle:
            connection = self._idle.pop()
            if connection.generation == generation and connection.usable():
                return connection
            connection.close()
        connection = await open_connection(self._wire, address, self._settings.redis_connect_timeout, deadline)
        connection.generation = generation
        return connection


class PoolScout:
    """Ask single servers for the resolver, each over a connection of its own."""

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
