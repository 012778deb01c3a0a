"""Find the master's current address: one resolver per kind of URL."""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hiredis import ReplyError

from relier.errors import ConfigurationError, StoreSetupError
from relier.settings import Settings
from relier.store.connect.address import Address, StoreTarget
from relier.store.connect.embedded import EmbeddedServer
from relier.store.master_lookup import LOOKUP_ERRORS, LookupIO, Resolver
from relier.store.policy import AttemptError, Clock

SENTINEL_CHECK = 1.0  # how often the master is confirmed while the store is used
SENTINEL_PATIENCE = 0.5  # how long one Sentinel may take
SENTINEL_REST = 5.0  # how long a Sentinel that did not answer is left alone


def master_not_found(what: str, problems: Sequence[str | Exception]) -> Exception:
    """Return the error for a master that no node named.

    It is a setup error only if all nodes refused us. Otherwise asking again may help.
    """
    if problems and all(isinstance(problem, ConfigurationError) for problem in problems):
        return StoreSetupError(f"{what}: {'; '.join(map(str, problems))}")
    return AttemptError(f"{what} ({'; '.join(map(str, problems))})", sent=False)


class FixedResolver:
    """Return one fixed address. A host name is looked up again for every connection."""

    check_every: float | None = None
    replicas: int | None = None

    def __init__(self, address: Address) -> None:
        self._address = address

    async def locate(self, io: LookupIO) -> Address:
        del io
        return self._address

    def close(self) -> None:
        """Do nothing: a fixed address holds no resource."""


class EmbeddedResolver(FixedResolver):
    """Find the project's own server, and start it if it does not run."""

    def __init__(self, folder: str) -> None:
        super().__init__(Address())
        self._server = EmbeddedServer(folder)

    async def locate(self, io: LookupIO) -> Address:
        path = await io.blocking(lambda: self._server.ensure_running(io.left()))
        return replace(self._address, path=path)

    def close(self) -> None:
        self._server.leave()


class SentinelResolver(FixedResolver):
    """Ask every Sentinel, and use the answer with the highest configuration epoch.

    `replicas` is the largest number of replicas that any Sentinel has reported. The number never shrinks in this
    process. Otherwise "all replicas" would mean fewer once a master is isolated from them. A replica that no Sentinel
    knows is not counted.
    """

    check_every: float | None = SENTINEL_CHECK

    def __init__(self, target: StoreTarget, clock: Clock) -> None:
        super().__init__(target.master)
        self._nodes = target.nodes
        self._name = target.master_name
        self._clock = clock
        self._resting: dict[Address, float] = {}

    async def locate(self, io: LookupIO) -> Address:
        now = self._clock()
        awake = [node for node in self._nodes if self._resting.get(node, now) <= now] or list(self._nodes)
        known: list[tuple[int, str, int]] = []
        problems: list[str | Exception] = []
        for node in awake:
            try:
                reply = await io.ask(node, "SENTINEL", "MASTER", self._name, patience=SENTINEL_PATIENCE)
            except LOOKUP_ERRORS as error:
                self._resting[node] = self._clock() + SENTINEL_REST
                problems.append(error)
            else:
                if isinstance(reply, ReplyError):
                    problems.append(f"{node} replied {str(reply)!r}")
                else:
                    known.append(self._read(reply))
        if not known:
            raise master_not_found(f"no Sentinel located the master {self._name!r}", problems)
        _, host, port = max(known)
        return replace(self._address, host=host, port=port)

    def _read(self, reply: list[bytes]) -> tuple[int, str, int]:
        fields = {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}
        self.replicas = max(self.replicas or 0, int(fields.get("num-slaves", 0)))
        return int(fields.get("config-epoch", 0)), fields["ip"], int(fields["port"])


class ClusterResolver(FixedResolver):
    """Find the master of the namespace's slot. All keys of a namespace share a hash tag, so one slot is enough."""

    def __init__(self, target: StoreTarget, namespace: str) -> None:
        super().__init__(target.master)
        self._given = target.nodes
        self._seeds = list(target.nodes)  # in the order to ask; threads share it, so it is replaced, never mutated
        self._slot = binascii.crc_hqx(namespace.encode(), 0) % 16384

    async def locate(self, io: LookupIO) -> Address:
        problems: list[str | Exception] = []
        for seed in self._seeds:
            if not io.left():  # nodes not asked keep their place, and are asked first next time
                problems.append("no time was left to ask the other nodes")
                break
            try:
                reply = await io.ask(seed, "CLUSTER", "SLOTS")
            except LOOKUP_ERRORS as error:
                self._seeds = [other for other in self._seeds if other != seed] + [seed]
                problems.append(error)
                continue
            owner = None if isinstance(reply, ReplyError) else self._owner(reply, seed)
            if owner is not None:
                return owner
            said = repr(str(reply)) if isinstance(reply, ReplyError) else "without an owner of the slot"
            problems.append(f"{seed} replied {said}")
        raise master_not_found(f"no node located the master of slot {self._slot}", problems)

    def _owner(self, ranges: list[Any], seed: Address) -> Address | None:
        """Return the slot's master. If found, ask this node first next time, then those it knows, then the URL's."""
        found = None
        known: list[Address] = []
        for first, last, *nodes in ranges:
            here = [self._node(host or seed.host.encode(), port) for host, port, *_ in nodes]
            known += here
            if first <= self._slot <= last:
                found = here[0]
        if found is not None:  # a node that lost its cluster knows no other nodes
            self._seeds = list(dict.fromkeys((seed, *known, *self._given)))
        return found

    def _node(self, host: bytes, port: int) -> Address:
        return replace(self._address, host=host.decode(), port=port)


def resolver_of(target: StoreTarget, settings: Settings, clock: Clock) -> Resolver:
    """Return the resolver for a URL's target."""
    if target.kind == "embedded":
        return EmbeddedResolver(target.folder)
    if target.kind == "sentinel":
        return SentinelResolver(target, clock)
    if target.kind == "cluster":
        return ClusterResolver(target, settings.namespace)
    return FixedResolver(target.nodes[0])
