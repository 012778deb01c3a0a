"""Pool the connections of one loop or one process: last in, first out, limited in number, waits end at a deadline."""

from __future__ import annotations

from collections import deque

from relier.settings import Settings
from relier.store.connect.handshake import ConnectionLookupIO, open_connection
from relier.store.master_lookup import MasterLookup
from relier.store.policy import AttemptError, Clock, Deadline
from relier.store.wire import Connection, Wire

IDLE_LIFE = 30.0  # seconds after which an idle connection above the minimum is closed


class Pool:
    """Hold connections to the master."""

    def __init__(self, wire: Wire, lookup: MasterLookup, settings: Settings, clock: Clock) -> None:
        self._wire = wire
        self._lookup = lookup
        self._settings = settings
        self._clock = clock
        self._slots = wire.slots(settings.redis_pool_size)
        self._idle: deque[Connection] = deque()
        self._closed = False

    async def take(self, deadline: Deadline) -> Connection:
        """Return an idle connection of the current generation, or a new one. Wait for a slot until the deadline."""
        if not await self._slots.acquire(deadline.left()):
            raise AttemptError(
                f"all {self._settings.redis_pool_size} connections stayed in use (RELIER_REDIS_POOL_SIZE)",
                retry=False,
                new_lookup=False,
                sent=False,
            )
        try:
            return await self._find(deadline)
        except BaseException:
            self._slots.release()
            raise

    def take_nowait(self) -> Connection | None:
        """Return an idle connection, or None if that would need waiting."""
        if self._lookup.known_address() is None or not self._idle or not self._slots.acquire_nowait():
            return None
        connection = self._idle.pop()
        if connection.generation == self._lookup.generation and connection.usable():
            return connection
        connection.close()
        self._slots.release()
        return None

    def give_back(self, connection: Connection) -> None:
        """Return a connection to the pool. A connection that is closed or of a past generation is not kept."""
        now = self._clock()
        if self._closed or connection.generation != self._lookup.generation or not connection.is_open:
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
        address = self._lookup.known_address()
        if address is None:
            address = await self._lookup.find(ConnectionLookupIO(self._wire, self._settings, deadline))
        generation = self._lookup.generation
        while self._idle:
            connection = self._idle.pop()
            if connection.generation == generation and connection.usable():
                return connection
            connection.close()
        connection = await open_connection(self._wire, address, self._settings.redis_connect_timeout, deadline)
        connection.generation = generation
        return connection
