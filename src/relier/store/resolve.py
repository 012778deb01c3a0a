"""Which address is the master now? One resolver per kind of URL; `Route` keeps the answer until there is trouble."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from hiredis import ReplyError

from relier.errors import ConfigurationError, StoreSetupError
from relier.settings import Settings
from relier.store.address import Address, Target
from relier.store.embedded import EmbeddedServer
from relier.store.policy import AttemptError, Clock

PROBLEMS = (AttemptError, ConfigurationError)  # one node's silence, or its refusal, is no reason to doubt the others
SENTINEL_CHECK = 1.0  # how often the master is confirmed while the store is used
SENTINEL_PATIENCE = 0.5  # how long one Sentinel may take
SENTINEL_REST = 5.0  # how long a Sentinel that did not answer is left alone


class Scout(Protocol):
    """What a resolver may use to find the master, within the deadline of the call that needs it."""

    def left(self) -> float: ...
    async def ask(self, address: Address, *command: str, patience: float | None = None) -> Any: ...
    async def blocking(self, work: Callable[[], str]) -> str: ...


class Resolver(Protocol):
    """Answers where the master is."""

    check_every: float | None
    replicas: int | None

    async def locate(self, scout: Scout) -> Address: ...
    def close(self) -> None: ...


def nobody(what: str, problems: Sequence[str | Exception]) -> Exception:
    """Why nobody named the master. It is our settings only where all refused us; else asking again may help."""
    if problems and all(isinstance(problem, ConfigurationError) for problem in problems):
        return StoreSetupError(f"{what}: {'; '.join(map(str, problems))}")
    return AttemptError(f"{what} ({'; '.join(map(str, problems))})", sent=False)


class FixedResolver:
    """One address. A name is looked up anew with every connection."""

    check_every: float | None = None
    replicas: int | None = None

    def __init__(self, address: Address) -> None:
        self._address = address

    async def locate(self, scout: Scout) -> Address:
        del scout
        return self._address

    def close(self) -> None:
        """Nothing is held."""


class EmbeddedResolver(FixedResolver):
    """The project's own server, started when nobody has yet."""

    def __init__(self, folder: str) -> None:
        super().__init__(Address())
        self._server = EmbeddedServer(folder)

    async def locate(self, scout: Scout) -> Address:
        path = await scout.blocking(lambda: self._server.ensure_running(scout.left()))
        return replace(self._address, path=path)

    def close(self) -> None:
        self._server.leave()


class SentinelResolver(FixedResolver):
    """Asks every Sentinel and believes the one with the highest configuration epoch.

    `replicas` is the largest number of replicas any Sentinel knew: it grows and is never lowered in this process, so
    that an isolated master cannot make "all replicas" mean fewer. A replica no Sentinel has heard of is not counted.
    """

    check_every: float | None = SENTINEL_CHECK

    def __init__(self, target: Target, clock: Clock) -> None:
        super().__init__(target.master)
        self._nodes = target.nodes
        self._name = target.master_name
        self._clock = clock
        self._resting: dict[Address, float] = {}

    async def locate(self, scout: Scout) -> Address:
        now = self._clock()
        awake = [node for node in self._nodes if self._resting.get(node, now) <= now] or list(self._nodes)
        known: list[tuple[int, str, int]] = []
        problems: list[str | Exception] = []
        for node in awake:
            try:
                reply = await scout.ask(node, "SENTINEL", "MASTER", self._name, patience=SENTINEL_PATIENCE)
            except PROBLEMS as error:
                self._resting[node] = self._clock() + SENTINEL_REST
                problems.append(error)
            else:
                if isinstance(reply, ReplyError):
                    problems.append(f"{node} answered {str(reply)!r}")
                else:
                    known.append(self._read(reply))
        if not known:
            raise nobody(f"no Sentinel names the master {self._name!r}", problems)
        _, host, port = max(known)
        return replace(self._address, host=host, port=port)

    def _read(self, reply: list[bytes]) -> tuple[int, str, int]:
        fields = {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}
        self.replicas = max(self.replicas or 0, int(fields.get("num-slaves", 0)))
        return int(fields.get("config-epoch", 0)), fields["ip"], int(fields["port"])


class ClusterResolver(FixedResolver):
    """The master of the slot that holds the namespace. All keys of a namespace share a hash tag, so that is enough."""

    def __init__(self, target: Target, namespace: str) -> None:
        super().__init__(target.master)
        self._given = target.nodes
        self._seeds = list(target.nodes)  # in the order they are asked; shared by threads, so replaced and not changed
        self._slot = binascii.crc_hqx(namespace.encode(), 0) % 16384

    async def locate(self, scout: Scout) -> Address:
        problems: list[str | Exception] = []
        for seed in self._seeds:
            if not scout.left():  # who has not been asked stays where it is, and is the first one next time
                problems.append("no time is left to ask the others")
                break
            try:
                reply = await scout.ask(seed, "CLUSTER", "SLOTS")
            except PROBLEMS as error:
                self._seeds = [other for other in self._seeds if other != seed] + [seed]
                problems.append(error)
                continue
            owner = None if isinstance(reply, ReplyError) else self._owner(reply, seed)
            if owner is not None:
                return owner
            problems.append(f"{seed} answered {str(reply)!r}" if isinstance(reply, ReplyError) else f"{seed}: no owner")
        raise nobody(f"no node names the master of slot {self._slot}", problems)

    def _owner(self, ranges: list[Any], seed: Address) -> Address | None:
        """The slot's master. Whom to ask next time: who answered, those it knows, and last what the URL names."""
        found = None
        known: list[Address] = []
        for first, last, *nodes in ranges:
            here = [self._node(host or seed.host.encode(), port) for host, port, *_ in nodes]
            known += here
            if first <= self._slot <= last:
                found = here[0]
        if found is not None:  # a node that lost its cluster knows nobody
            self._seeds = list(dict.fromkeys((seed, *known, *self._given)))
        return found

    def _node(self, host: bytes, port: int) -> Address:
        return replace(self._address, host=host.decode(), port=port)


def resolver_of(target: Target, settings: Settings, clock: Clock) -> Resolver:
    """The resolver a URL asks for."""
    if target.kind == "embedded":
        return EmbeddedResolver(target.folder)
    if target.kind == "sentinel":
        return SentinelResolver(target, clock)
    if target.kind == "cluster":
        return ClusterResolver(target, settings.namespace)
    return FixedResolver(target.nodes[0])


class Route:
    """The master's address as far as known, shared by all loops and threads of a store.

    `generation` names one belief. A connection keeps the generation it was opened under and is dropped once that has
    passed, so a switch of master, seen by anyone, empties every pool.
    """

    def __init__(self, resolver: Resolver, clock: Clock) -> None:
        self.resolver = resolver
        self.generation = 1
        self._clock = clock
        self._address: Address | None = None
        self._check_at = 0.0

    def known(self) -> Address | None:
        """The master, or None when it must be looked for: it is unknown, or a check is due."""
        if self.resolver.check_every is not None and self._clock() >= self._check_at:
            return None
        return self._address

    async def find(self, scout: Scout) -> Address:
        """Ask the resolver. While it looks, others go on with what is known; so do we when it finds nobody to ask."""
        if self.resolver.check_every is not None:
            self._check_at = self._clock() + self.resolver.check_every
        try:
            found = await self.resolver.locate(scout)
        except PROBLEMS:
            if self._address is None:
                raise
            return self._address
        if self._address is not None and found != self._address:
            self.generation += 1
        self._address = found
        return found

    def lost(self, generation: int) -> None:
        """Trouble on a connection of that generation: look for the master anew, unless somebody already did."""
        if generation == self.generation:
            self.generation += 1
            self._address = None

    def pinned_replicas(self, setting: int | None) -> int:
        """How many replicas `replicated` means. Never the master's own count: an isolated master forgets replicas."""
        count = setting if setting is not None else self.resolver.replicas
        if count is None:
            raise StoreSetupError(
                "durability 'replicated' was asked for, but the number of replicas is not known; "
                "set RELIER_REDIS_REPLICAS to the number of replicas that could be promoted, or use a sentinel:// URL"
            )
        if count == 0:
            raise StoreSetupError(
                "durability 'replicated' was asked for, but there are 0 replicas; "
                "add a replica and set RELIER_REDIS_REPLICAS, or ask for 'fsync' or 'memory'"
            )
        return count
