"""Keep the master's address until it fails, and define the contract of the resolvers that look it up.

The resolvers are in `connect/resolvers.py`, one per kind of URL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from relier.errors import ConfigurationError, StoreSetupError
from relier.store.connect.address import Address
from relier.store.policy import AttemptError, Clock

LOOKUP_ERRORS = (AttemptError, ConfigurationError)  # if one node is silent or refuses, ask the others


class LookupIO(Protocol):
    """Give a resolver what it needs to find the master, within the deadline of the call that needs it."""

    def left(self) -> float: ...
    async def ask(self, address: Address, *command: str, patience: float | None = None) -> Any: ...
    async def blocking(self, work: Callable[[], str]) -> str: ...


class Resolver(Protocol):
    """Find the master."""

    check_every: float | None
    replicas: int | None

    async def locate(self, io: LookupIO) -> Address: ...
    def close(self) -> None: ...


class MasterLookup:
    """Hold the master's address, as far as known, for all loops and threads of a store.

    `generation` numbers the known addresses. A connection keeps the generation it was opened under, and is dropped once
    the generation has changed. So when any call notices a new master, every pool is emptied.
    """

    def __init__(self, resolver: Resolver, clock: Clock) -> None:
        self.resolver = resolver
        self.generation = 1
        self._clock = clock
        self._address: Address | None = None
        self._check_at = 0.0

    def known_address(self) -> Address | None:
        """Return the master, or None if it must be looked up because it is unknown or a check is due."""
        if self.resolver.check_every is not None and self._clock() >= self._check_at:
            return None
        return self._address

    async def find(self, io: LookupIO) -> Address:
        """Ask the resolver for the master, and return its address.

        Meanwhile other calls use the known address. If no node answers, this call uses the known address too.
        """
        if self.resolver.check_every is not None:
            self._check_at = self._clock() + self.resolver.check_every
        try:
            found = await self.resolver.locate(io)
        except LOOKUP_ERRORS:
            if self._address is None:
                raise
            return self._address
        if self._address is not None and found != self._address:
            self.generation += 1
        self._address = found
        return found

    def forget(self, generation: int) -> None:
        """Forget the master after an error on a connection of that generation, unless another call already did."""
        if generation == self.generation:
            self.generation += 1
            self._address = None

    def required_replicas(self, setting: int | None) -> int:
        """Return how many replicas `replicated` requires.

        The master's own count is never used, because an isolated master forgets replicas.
        """
        count = setting if setting is not None else self.resolver.replicas
        if count is None:
            raise StoreSetupError(
                "cannot confirm durability 'replicated': the number of replicas is unknown; "
                "set RELIER_REDIS_REPLICAS to the number of replicas that could be promoted, or use a sentinel:// URL"
            )
        if count == 0:
            raise StoreSetupError(
                "cannot confirm durability 'replicated': there are 0 replicas; "
                "add a replica and set RELIER_REDIS_REPLICAS, or use durability 'fsync' or 'memory'"
            )
        return count
