"""The outbox for SQLAlchemy: a table in the user's MetaData, and pushes from sessions and connections.

    outbox = Outbox(Base.metadata)
    with Session(engine) as session, session.begin():
        session.add(order)
        outbox.add(session, send_receipt, order.id)     # or: send_receipt.push_in(session, order.id)

Rows that are pushed in a Session are pending until just before its commit, or the release of a savepoint. Then one
insert writes them, in the transaction or savepoint they were pushed in. Rows that are pushed in a Connection, or in a
Session that joined one, are inserted at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

import msgspec
from sqlalchemy import (
    Connection,
    Engine,
    MetaData,
    TwoPhaseTransaction,
    event,
    insert,
    inspect,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from relier.errors import ConfigurationError, OutsideTransactionError
from relier.outbox.push import DEFAULT_TABLE, set_in_context, use_outbox
from relier.outbox.row import NewRow, inserts_of
from relier.outbox.sqlalchemy.binds import acquired_by, bind_arguments_for, sole_bind_arguments
from relier.outbox.sqlalchemy.engines import database_of, statement
from relier.outbox.sqlalchemy.pending_rows import PendingRows
from relier.outbox.sqlalchemy.tables import TRANSACTIONAL, dialect_of, outbox_table
from relier.outbox.table.statements import Transaction
from relier.outbox.wake.doorbell import Doorbell
from relier.outbox.wake.postgres_notify import NOTIFY, channel_of
from relier.submit.client import default_client

if TYPE_CHECKING:
    from relier.submit.receipt import SyncTaskReceipt, TaskReceipt
    from relier.task.pushable import Pushable

P = ParamSpec("P")
R = TypeVar("R")

AUTOCOMMIT = (
    "the connection is in AUTOCOMMIT mode, so {name} would be sent even if the rest fails; nothing was written; "
    "begin a transaction, or create the outbox with strict=False"
)


class Outbox:
    """An outbox: a table in `metadata`.

    `strict`: refuse pushes that would commit on their own. `wake`: commits wake relays through the ledger's store.
    `notify`: commits wake relays with `--listen` through PostgreSQL.
    """

    def __init__(
        self,
        metadata: MetaData,
        *,
        table: str = DEFAULT_TABLE,
        strict: bool = True,
        wake: bool = True,
        notify: bool = False,
    ) -> None:
        self.table = outbox_table(metadata, table)
        self._notify = notify
        self._strict = strict
        self._doorbell = Doorbell(default_client) if wake else None
        # Weak on both sides: rows know their session, and a session that nobody closes must not stay alive with its
        # connection. The session's listeners keep its rows alive.
        self._pending: WeakKeyDictionary[Session, ReferenceType[PendingRows]] = WeakKeyDictionary()
        self._armed: WeakSet[Connection] = WeakSet()
        self._using: ContextVar[Any] = ContextVar("relier_outbox", default=None)
        use_outbox(self)

    # --- writing -----------------------------------------------------------------------------------------------------

    def add(self, where: Any, task: Pushable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncTaskReceipt[R]:
        """Push a call of a task. It is accepted if and when the transaction of `where` commits."""
        return task.write_to(self, where, args, kwargs)

    async def aadd(self, where: Any, task: Pushable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> TaskReceipt[R]:
        """Push a call of a task from async code, as `add` does. An AsyncConnection requires this method."""
        return await task.awrite_to(self, where, args, kwargs)

    def write(self, where: Any, rows: Sequence[NewRow]) -> None:
        """Write rows in the transaction of `where`."""
        target = sync_target(where)
        if isinstance(target, AsyncConnection):
            raise ConfigurationError(
                "a push to an AsyncConnection must be awaited; nothing was written; use `await "
                "task.apush_in(connection, …)` or `await outbox.aadd(connection, task, …)`"
            )
        if isinstance(target, Session):
            self._pending_rows_of(target).add(rows)
        else:
            self.insert(target, rows)
            self.ring_after(target)

    async def awrite(self, where: Any, rows: Sequence[NewRow]) -> None:
        target = where() if isinstance(where, async_scoped_session) else where
        if isinstance(target, AsyncSession | AsyncConnection):
            await target.run_sync(lambda inner: self.write(inner, rows))
        else:
            self.write(target, rows)

    def insert(self, connection: Connection, rows: Sequence[NewRow]) -> None:
        """Insert rows, in one statement or a few: databases limit the number of values and bytes."""
        if self._strict and commits_by_itself(connection):
            raise OutsideTransactionError(AUTOCOMMIT.format(name=rows[0].name))
        for some in inserts_of(rows):
            connection.execute(insert(self.table).values([msgspec.structs.asdict(row) for row in some]))
        # PostgreSQL does not prepare a transaction that has used NOTIFY: a relay finds its rows by polling.
        is_prepared = isinstance(connection.get_transaction(), TwoPhaseTransaction)
        if self._notify and connection.dialect.name == "postgresql" and not is_prepared:
            connection.execute(statement(NOTIFY), {"channel": channel_of(self.table.name)})

    def check(self, session: Session, rows: Sequence[NewRow]) -> None:
        """Refuse at the push what `insert` would refuse at the commit, as far as that is already known: an engine that
        is set to AUTOCOMMIT, or an unsuitable connection that the session already has."""
        if not self._strict:
            return
        bind = session.get_bind(**bind_arguments_for(session, self.table))
        connection = acquired_by(session, bind)
        if is_set_to_autocommit(bind) if connection is None else commits_by_itself(connection):
            raise OutsideTransactionError(AUTOCOMMIT.format(name=rows[0].name))

    @contextmanager
    def using(self, where: Any) -> Iterator[None]:
        """Inside the block, `.delay()` and `.apply_async()` of a Celery app with this outbox write in the
        transaction."""
        with set_in_context(self._using, sync_target(where)):
            yield

    def pending(self, where: Any) -> list[NewRow]:
        """Return the rows of a session that its next commit will insert."""
        target = None if isinstance(where, Engine | AsyncEngine) else sync_target(where)
        found = self._pending.get(target) if isinstance(target, Session) else None
        pending = None if found is None else found()
        return [] if pending is None else pending.rows

    def current(self) -> Any:
        """Return the session or connection of `using`, if there is one."""
        return self._using.get()

    def ring(self) -> None:
        if self._doorbell is not None:
            self._doorbell.ring()

    def _pending_rows_of(self, session: Session) -> PendingRows:
        found = self._pending.get(session)
        pending = None if found is None else found()
        if pending is None:
            pending = PendingRows(self, session)
            self._pending[session] = ref(pending)
        return pending

    def ring_after(self, connection: Connection) -> None:
        """Wake a relay at the next commit. SQLAlchemy reports a commit just before it happens, so the relay polls a few
        times."""
        if self._doorbell is None or connection in self._armed:
            return
        self._armed.add(connection)

        def committing(committed: Connection) -> None:
            self._armed.discard(committed)
            self.ring()

        event.listen(connection, "commit", committing, once=True)

    # --- the schema --------------------------------------------------------------------------------------------------

    def validate_schema(self, bind: Engine | Connection) -> None:
        """Raise a ConfigurationError that lists what is missing or different in the table."""
        wrong = list(self._mismatches(bind))
        if wrong:
            raise ConfigurationError(
                f"the outbox table {self.table.fullname!r} does not match: {'; '.join(wrong)}; migrate it: with "
                f"Alembic, `alembic revision --autogenerate` finds the difference"
            )

    def _mismatches(self, bind: Engine | Connection) -> Iterator[str]:
        inspector = inspect(bind)
        if not inspector.has_table(self.table.name, schema=self.table.schema):
            yield "it does not exist"
            return
        found = {column["name"]: column for column in inspector.get_columns(self.table.name, schema=self.table.schema)}
        for column in self.table.columns:
            there = found.get(column.name)
            if there is None:
                yield f"column {column.name} ({column.type!r}) is missing"
            elif there["type"].python_type is not column.type.python_type:
                yield f"column {column.name} is {there['type']!r}, and should be {column.type!r}"
        required = {column.name for column in self.table.columns}
        for name, column_found in found.items():
            if name not in required and not column_found["nullable"] and column_found.get("default") is None:
                yield f"column {name} is not one of the outbox's, and must not be NULL: no row can be written"
        options = inspector.get_table_options(self.table.name, schema=self.table.schema)
        engine = options.get(f"{inspector.dialect.name}_engine", TRANSACTIONAL)
        if engine != TRANSACTIONAL:
            yield f"its engine is {engine}, which keeps rows that are rolled back, and should be {TRANSACTIONAL}"
        indexes = inspector.get_indexes(self.table.name, schema=self.table.schema)
        indexed = {tuple(index["column_names"]) for index in indexes}
        for index in self.table.indexes:
            columns = tuple(column.name for column in index.columns)
            if columns not in indexed:
                yield f"the index on ({', '.join(columns)}) is missing"


def sync_target(where: Any) -> Any:
    """Return the session or connection itself, without an async or scoped wrapper."""
    if isinstance(where, scoped_session):
        return where()
    if isinstance(where, async_scoped_session):
        return where().sync_session
    if isinstance(where, AsyncSession):
        return where.sync_session
    if isinstance(where, Session | Connection | AsyncConnection):
        return where
    raise ConfigurationError(
        f"a Session, AsyncSession, Connection or AsyncConnection is needed, not {where!r:.60}; nothing was written"
    )


def is_set_to_autocommit(bind: Engine | Connection) -> bool:
    """Return whether a bind is set to AUTOCOMMIT, before there is a connection. On SQLite, a listener that emits BEGIN
    may undo the setting."""
    if bind.dialect.name == "sqlite" and bind.dispatch.begin:
        return False
    given = bind.get_execution_options().get("isolation_level") or bind.dialect._on_connect_isolation_level  # noqa: SLF001
    return str(given).upper() == "AUTOCOMMIT"


def commits_by_itself(connection: Connection) -> bool:
    """Return whether each statement of a connection commits on its own."""
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return True
    if connection.dialect.name == "sqlite":
        return _sqlite_commits_by_itself(connection)
    # Drivers of MySQL have a method instead of the attribute.
    get_autocommit = getattr(connection.connection.driver_connection, "get_autocommit", None)
    if get_autocommit:
        return get_autocommit() is True
    return getattr(connection.connection.dbapi_connection, "autocommit", False) is True


def _sqlite_commits_by_itself(connection: Connection) -> bool:
    """Return whether SQLite commits each statement by itself.

    The driver begins no transaction under AUTOCOMMIT, nor if a listener emits BEGIN. But in the second case, a
    transaction is open.
    """
    if not connection.in_transaction():
        connection.begin()  # as the first statement would
    driver: Any = connection.connection.driver_connection  # aiosqlite has the same attributes, but for the last
    begins_none = driver.isolation_level is None or getattr(getattr(driver, "_conn", driver), "autocommit", 0) is True
    return begins_none and not driver.in_transaction


# --- reading, for the inbox and for tests ----------------------------------------------------------------------------


class SessionStatements:
    """Runs statements in the transaction of a session or a connection."""

    def __init__(self, target: Session | Connection) -> None:
        self._target = target
        self._where = sole_bind_arguments(target) if isinstance(target, Session) else {}
        self._bind = target.get_bind(**self._where) if isinstance(target, Session) else target
        self.dialect = dialect_of(self._bind.dialect.name)

    def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
        return self._execute(sql, values).all()  # type: ignore[no-any-return]

    def change(self, sql: str, values: Mapping[str, Any]) -> int:
        return int(self._execute(sql, values).rowcount)

    def _execute(self, sql: str, values: Mapping[str, Any]) -> Any:
        if isinstance(self._target, Session):
            return self._target.execute(statement(sql), values, bind_arguments=dict(self._where))
        return self._target.execute(statement(sql), values)


def run_in_transaction_of(bind: Any, look: Callable[[Transaction, str], R]) -> R:
    """Return what `look` returns for a transaction of `bind` and its dialect. For tests. A session or connection sees
    its own uncommitted rows. An async one is read over another connection, which sees committed rows only."""
    if isinstance(bind, async_scoped_session):
        bind = bind()
    if isinstance(bind, AsyncSession | AsyncConnection):
        bind = bind.bind if isinstance(bind, AsyncSession) else bind.engine
    if isinstance(bind, AsyncEngine):
        with ThreadPoolExecutor(1) as pool:  # the caller may be on an event loop, and this needs another
            return pool.submit(_looking_into, bind, look).result()
    if isinstance(bind, Engine):
        return _looking_into(bind, look)
    target = sync_target(bind)
    own = not target.in_transaction()
    statements = SessionStatements(target)
    try:
        found = look(statements, statements.dialect)
    except BaseException:
        if own:
            target.rollback()
        raise
    if own:
        target.commit()
    return found


def _looking_into(engine: Engine | AsyncEngine, look: Callable[[Transaction, str], R]) -> R:
    database = database_of(engine)
    try:
        with database.begin() as tx:
            return look(tx, database.dialect)
    finally:
        database.close()
