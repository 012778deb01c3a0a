"""The relays of one process: one for each table, in several databases and schemas, over the same ledger and broker.

Each relay has its own thread and its own breakers, so a relay whose database is unreachable or refuses does not stop
the others. Shared parts (the targets, the membership, the doorbell of the ledger) begin and end with the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relier.errors import ConfigurationError, OutboxDatabaseError
from relier.outbox.publish.target import PublishTarget
from relier.outbox.relay.database_health import ask_within
from relier.outbox.relay.membership import Membership
from relier.outbox.relay.metrics import reported
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.process import run_relays
from relier.outbox.relay.relay import Relay
from relier.outbox.relay.to_ledger import ledger_target
from relier.outbox.table.names import quoted, table_parts
from relier.outbox.table.statements import Database, said_by
from relier.outbox.wake.doorbell import DoorbellListener, WakeListener
from relier.redact import shown
from relier.stop_signals import refuse_on_windows
from relier.submit.client import Client

log = logging.getLogger("relier.outbox")

SCHEMA_OF = {
    "postgresql": (
        "SELECT nspname FROM pg_catalog.pg_namespace WHERE oid = "
        "(SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = to_regclass('{t}'))"
    ),
    "mysql": "SELECT database()",
    "sqlite": "SELECT 'main'",
}
ListenerFactory = Callable[[Callable[[], None]], WakeListener]


@dataclass(frozen=True, slots=True)
class RelayTable:
    """A table that has its own relay. `name`: the name of the database in logs. `listener`: if given, wakes the relay
    instead of the ledger's doorbell."""

    name: str
    database: Database
    table: str
    listener: ListenerFactory | None = None


class Fleet:
    """The relays of a process. `client`: None if they have no ledger."""

    def __init__(
        self,
        relay_tables: Sequence[RelayTable],
        options: RelayOptions,
        targets: Sequence[PublishTarget],
        client: Client | None,
    ) -> None:
        refuse_on_windows("an outbox relay")
        self._relay_tables = relay_tables
        self._targets = [*([] if client is None else [ledger_target(client, options)]), *targets]
        self._membership: Membership | None = None
        self._doorbell = SharedDoorbell()
        self.started = False
        if client is not None:
            home = client.shards[0]  # with shards, relays are members of the first one
            about = {
                "tables": [relay_table.table for relay_table in relay_tables],
                "kinds": [one.kind for one in self._targets],
            }
            self._membership = Membership(home.settings, home.scripts, lambda: dict(about), self._report, self.stop)
            if not options.no_wake and any(relay_table.listener is None for relay_table in relay_tables):
                drained = lambda: self.is_draining  # noqa: E731 - read before each wait
                self._doorbell.listener = DoorbellListener(home.settings, home.scripts, self._doorbell.ring, drained)
        self.relays = [self._relay(relay_table, options, client) for relay_table in relay_tables]

    def stop(self) -> None:
        """Shut all relays down. Callable from any thread."""
        for relay in self.relays:
            relay.stop()

    @property
    def is_draining(self) -> bool:
        """Whether an operator ordered the relays to claim no more rows."""
        return self._membership is not None and self._membership.is_draining

    def _report(self) -> dict[str, Any]:
        return reported(self.relays)

    def _relay(self, relay_table: RelayTable, options: RelayOptions, client: Client | None) -> Relay:
        wakes = relay_table.listener or (self._doorbell.listener_for if self._doorbell.listener is not None else None)
        more: dict[str, Any] = {}
        if client is not None:
            settings = client.settings
            more = {"show": lambda name, text: str(shown(settings, name, text))}
        relay = Relay(
            relay_table.database,
            [SharedTarget(one) for one in self._targets],
            replace(options, table=relay_table.table),
            None if self._membership is None else SharedMembership(self._membership),
            None if options.no_wake else wakes,
            **more,
        )
        if len(self._relay_tables) > 1:
            relay.health.where = f"{relay_table.name}, table {relay_table.table}"
            relay.labels = {"database": relay_table.name, "table": relay_table.table}
        return relay

    def check(self) -> None:
        """Raise at the start if every database refuses its relay."""
        refused: list[OutboxDatabaseError] = []
        for relay_table, relay in zip(self._relay_tables, self.relays, strict=True):
            try:
                relay.health.check(relay_table.name)
            except OutboxDatabaseError as error:
                refused.append(error)
            else:
                return
        for relay_table in self._relay_tables:
            relay_table.database.close()
        raise refused[0]

    def run(self) -> None:
        """Run until SIGTERM or SIGINT."""
        for relay_table, relay in zip(self._relay_tables, self.relays, strict=True):
            database = f" database={relay_table.name}" if len(self._relay_tables) > 1 else ""
            log.info("relay started: relay=%s table=%s%s", relay.relay_id, relay_table.table, database)
        if self._membership is not None:
            self._membership.begin()
        if self._doorbell.listener is not None:
            self._doorbell.listener.start()
        self.started = True
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
    """Return the tables that --table and --schema select: each table in each schema."""
    tables, schemas = list(tables), list(schemas)
    if schemas and (wrong := [table for table in tables if "." in table]):
        raise ConfigurationError(
            f"--table {wrong[0]} already includes a schema; remove --schema, or give the table name alone"
        )
    return [f"{schema}.{table}" for schema in schemas for table in tables] if schemas else tables


def check_relay_tables(relay_tables: Sequence[RelayTable]) -> None:
    """Refuse a table that is given twice: two relays of one process would treat each other's rows as their own.

    SQLite ignores the case of names even if they are quoted. If names on MySQL differ only in case, ask the server. If
    a table name is given both with a schema and without one, ask the database whether both are the same table.
    """
    fold = {one.name for one in relay_tables if one.database.dialect == "sqlite"}
    fold |= {one.name for one in _alike(relay_tables) if _ignores_case(one)}

    def key_of(relay_table: RelayTable) -> tuple[str, str]:
        table = relay_table.table
        return relay_table.name, table.lower() if relay_table.name in fold else table

    seen: set[tuple[str, str]] = set()
    for relay_table in relay_tables:
        if key_of(relay_table) in seen:
            raise ConfigurationError(f"table {relay_table.table} of {relay_table.name} is given twice; give it once")
        seen.add(key_of(relay_table))
    in_schemas = {(name, table_parts(table)[1]) for name, table in seen if table_parts(table)[0] is not None}
    for relay_table in relay_tables:
        if table_parts(relay_table.table)[0] is None and key_of(relay_table) in in_schemas:
            whole = f"{_schema_of(relay_table)}.{relay_table.table}"
            if key_of(replace(relay_table, table=whole)) in seen:
                raise ConfigurationError(
                    f"table {relay_table.table} of {relay_table.name} is given twice, as {relay_table.table} and as "
                    f"{whole}; give it once"
                )


def _alike(relay_tables: Sequence[RelayTable]) -> list[RelayTable]:
    """Return one table of each database of MySQL in which names of tables differ only in case."""
    found: dict[str, RelayTable] = {}
    seen: set[tuple[str, str]] = set()
    for relay_table in relay_tables:
        key = relay_table.name, table_parts(relay_table.table)[1].lower()
        if key in seen and relay_table.database.dialect == "mysql":
            found[relay_table.name] = relay_table
        seen.add(key)
    return list(found.values())


def _ignores_case(relay_table: RelayTable) -> bool:
    """Return whether a server of MySQL ignores the case of names of tables, which depends on its file system."""
    found = _answer_of(relay_table, "SELECT @@lower_case_table_names")
    return bool(found and found[0][0])


def _schema_of(relay_table: RelayTable) -> str:
    """Return the schema in which the database finds a table that is given without a schema. Return "" if the database
    does not answer; its relay will report that."""
    dialect = relay_table.database.dialect
    found = _answer_of(relay_table, SCHEMA_OF[dialect].replace("{t}", quoted(dialect, relay_table.table)))
    return str(found[0][0]) if found else ""


def _answer_of(relay_table: RelayTable, sql: str) -> Sequence[Any]:
    """Return the rows that a statement finds; none if the database does not answer."""

    def ask() -> Sequence[Any]:
        with relay_table.database.begin() as tx:
            return tx.run(sql, {})

    try:
        return ask_within(relay_table.database, ask)
    except Exception as error:  # noqa: BLE001 - unreachable, or it refused
        log.debug("no answer: table=%s error=%s", relay_table.table, said_by(error))
        return ()


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
    """The listener of the process, for one relay, which neither starts nor ends it."""

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
    """The membership of the process, for one relay, which neither begins nor ends it."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    @property
    def relay_id(self) -> str:
        return self._membership.relay_id

    @property
    def is_draining(self) -> bool:
        return self._membership.is_draining

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
