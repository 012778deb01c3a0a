"""Relays of one process: one for each table, in several databases and schemas, over the same ledger and broker.

Each relay has its own passes, its own thread and its own breakers: one whose database is away or refuses does not stop
the others. What they share (the targets, the membership, the doorbell of the ledger) begins and ends with the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relier.errors import ConfigurationError, OutboxDatabaseError
from relier.outbox.publish.target import PublishTarget
from relier.outbox.relay.membership import Membership
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.process import run_relays
from relier.outbox.relay.relay import Relay, ledger_target
from relier.outbox.table.statements import Database
from relier.outbox.wake.doorbell import DoorbellListener, WakeListener
from relier.redact import shown
from relier.submit.client import Client

log = logging.getLogger("relier.outbox")

ListenerFactory = Callable[[Callable[[], None]], WakeListener]


@dataclass(frozen=True, slots=True)
class RelayTable:
    """One table. `name`: its database, for people. `listener`: what wakes its relay, if not the ledger's doorbell."""

    name: str
    database: Database
    table: str
    listener: ListenerFactory | None = None


class Fleet:
    """The relays of a process. `client`: None for relays without a ledger."""

    def __init__(
        self,
        places: Sequence[RelayTable],
        options: RelayOptions,
        targets: Sequence[PublishTarget],
        client: Client | None,
    ) -> None:
        self._places = places
        self._targets = [*([] if client is None else [ledger_target(client, options)]), *targets]
        self._membership: Membership | None = None
        self._doorbell = SharedDoorbell()
        if client is not None:
            about = {"tables": [place.table for place in places], "kinds": [one.kind for one in self._targets]}
            self._membership = Membership(client.settings, client.scripts, lambda: dict(about))
            if not options.no_wake and any(place.listener is None for place in places):
                self._doorbell.listener = DoorbellListener(client.settings, client.scripts, self._doorbell.ring)
        self.relays = [self._relay(place, options, client) for place in places]

    def _relay(self, place: RelayTable, options: RelayOptions, client: Client | None) -> Relay:
        wakes = place.listener or (self._doorbell.listener_for if self._doorbell.listener is not None else None)
        more: dict[str, Any] = {}
        if client is not None:
            settings = client.settings
            more = {"show": lambda name, text: str(shown(settings, name, text))}
        relay = Relay(
            place.database,
            [SharedTarget(one) for one in self._targets],
            replace(options, table=place.table),
            None if self._membership is None else SharedMembership(self._membership),
            None if options.no_wake else wakes,
            **more,
        )
        if len(self._places) > 1:
            relay.health.where = f"{place.name}, table {place.table}"
            relay.labels = {"database": place.name, "table": place.table}
        return relay

    def check(self) -> None:
        """At the start: raise if every database refuses its relay. Of several, one that does not is enough."""
        refused: list[OutboxDatabaseError] = []
        for place, relay in zip(self._places, self.relays, strict=True):
            try:
                relay.health.check(place.name)
            except OutboxDatabaseError as error:
                refused.append(error)
            else:
                return
        for place in self._places:
            place.database.close()
        raise refused[0]

    def run(self) -> None:
        """Until SIGTERM or SIGINT."""
        for place, relay in zip(self._places, self.relays, strict=True):
            named = f" in {place.name}" if len(self._places) > 1 else ""
            log.info("relay %s sends what is committed to table %s%s", relay.boot, place.table, named)
        if self._membership is not None:
            self._membership.begin()
        if self._doorbell.listener is not None:
            self._doorbell.listener.start()
        run_relays(self.relays, self.close)

    def close(self) -> None:
        if self._doorbell.listener is not None:
            self._doorbell.listener.end()
        if self._membership is not None:
            self._membership.end()
        for target in self._targets:
            target.close()

    @property
    def published(self) -> int:
        return sum(relay.counts.published for relay in self.relays)


def tables_in(tables: Iterable[str], schemas: Iterable[str]) -> list[str]:
    """The tables that --table and --schema name: each table in each schema."""
    tables, schemas = list(tables), list(schemas)
    if schemas and (wrong := [table for table in tables if "." in table]):
        raise ConfigurationError(
            f"--table {wrong[0]} names its schema already; leave out --schema, or name the table alone"
        )
    return [f"{schema}.{table}" for schema in schemas for table in tables] if schemas else tables


def check_relay_tables(places: Sequence[RelayTable]) -> None:
    """Refuse a table that is named twice: two relays of one process would take each other's rows for their own."""
    seen: set[tuple[str, str]] = set()
    for place in places:
        if (place.name, place.table) in seen:
            raise ConfigurationError(f"table {place.table} of {place.name} is named twice; name it once")
        seen.add((place.name, place.table))


class SharedDoorbell:
    """The ledger's doorbell rings for all relays of the process."""

    def __init__(self) -> None:
        self.listener: WakeListener | None = None
        self._wakes: list[Callable[[], None]] = []

    def listener_for(self, wake: Callable[[], None]) -> WakeListener:
        self._wakes.append(wake)
        return SharedWakeListener(self)

    def ring(self) -> None:
        for wake in self._wakes:
            wake()


class SharedWakeListener(WakeListener):
    """The process's ear, for one relay, which neither starts nor ends it."""

    def __init__(self, doorbell: SharedDoorbell) -> None:
        super().__init__(doorbell.ring)
        self._doorbell = doorbell

    @property
    def is_listening(self) -> bool:
        return self._doorbell.listener is not None and self._doorbell.listener.is_listening

    @is_listening.setter
    def is_listening(self, _: bool) -> None: ...

    def start(self) -> None: ...

    def end(self) -> None: ...


class SharedMembership:
    """The process's membership, for one relay, which neither begins nor ends it."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    @property
    def boot(self) -> str:
        return self._membership.boot

    def members(self) -> Any:
        return self._membership.members()

    def begin(self) -> None: ...

    def end(self, within: float = 0.0) -> None: ...


class SharedTarget:
    """A target of the process, for one relay, which does not close it."""

    def __init__(self, target: PublishTarget) -> None:
        self.kind, self.chunk_size, self.publish = target.kind, target.chunk_size, target.publish
        if hasattr(target, "limit"):
            self.limit: float = target.limit

    def close(self) -> None: ...
