"""The outbox for SQLAlchemy: the table in the user's MetaData, the way in for sessions and connections, and the
databases a relay works on.

    outbox = Outbox(Base.metadata)
    with Session(engine) as session, session.begin():
        session.add(order)
        outbox.add(session, send_receipt, order.id)     # or: send_receipt.push_in(session, order.id)

Rows of a Session are gathered and become one insert just before its commit (or the release of a savepoint); what is
rolled back takes its rows along. Rows of a Connection are inserted at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, WeakSet, ref

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    TextClause,
    UniqueConstraint,
    create_engine,
    event,
    insert,
    inspect,
    text,
)
from sqlalchemy.dialects.mysql import LONGBLOB
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.pool import StaticPool
from sqlalchemy.sql.functions import FunctionElement

from relier.errors import ConfigurationError, OutsideTransactionError
from relier.outbox.bell import Ringer
from relier.outbox.inbox import DEFAULT_INBOX
from relier.outbox.postgres import NOTIFY, channel_of
from relier.outbox.row import NewRow
from relier.outbox.rows import NOW_MS, Transaction
from relier.outbox.write import DEFAULT_TABLE, use_outbox
from relier.submit.client import default_client

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler

    from relier.submit.receipt import SyncTaskReceipt, TaskReceipt
    from relier.task import Pushable

P = ParamSpec("P")
R = TypeVar("R")


class NowMs(FunctionElement[int]):
    """The database's own time, in ms."""

    type = BigInteger()
    inherit_cache = True


@compiles(NowMs)
def _now_ms(_: NowMs, compiler: SQLCompiler, **__: Any) -> str:
    return NOW_MS[_dialect(compiler.dialect.name)].replace("%", "%%")


def _dialect(name: str) -> str:
    return "mysql" if name == "mariadb" else name


AT_ONCE = 500
BLOB = LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")
NUMBER = BigInteger().with_variant(Integer(), "sqlite")  # SQLite counts up by itself for INTEGER alone


def outbox_table(metadata: MetaData, name: str = DEFAULT_TABLE) -> Table:
    """The table of an outbox."""
    return Table(
        name,
        metadata,
        Column("id", NUMBER, primary_key=True, autoincrement=True),
        Column("task_id", String(64), nullable=False),
        Column("kind", String(16), nullable=False),
        Column("name", String(255), nullable=False),
        Column("queue", String(255), nullable=False),
        Column("order_key", String(255), nullable=False, server_default=""),
        Column("body", BLOB, nullable=False),
        Column("created_at", BigInteger, nullable=False, default=NowMs()),
        Column("due_at", BigInteger, nullable=False, default=NowMs()),
        Column("leased_by", String(64), nullable=False, server_default=""),
        Column("leased_at", BigInteger, nullable=False, server_default="0"),
        Column("claims", Integer, nullable=False, server_default="0"),
        Column("retries", Integer, nullable=False, server_default="0"),
        Column("dead", SmallInteger, nullable=False, server_default="0"),
        Column("died_at", BigInteger, nullable=False, server_default="0"),
        Column("error", Text, nullable=True),
        Index(f"ix_{name}_due", "dead", "due_at", "id"),
        Index(f"ix_{name}_order", "order_key", "id"),
        Index(f"ix_{name}_task", "task_id"),
    )


def inbox_table(metadata: MetaData, name: str = DEFAULT_INBOX) -> Table:
    """The table of the marks that `ctx.exactly_once` writes."""
    return Table(
        name,
        metadata,
        Column("id", NUMBER, primary_key=True, autoincrement=True),
        Column("task_id", String(64), nullable=False),
        Column("revision", Integer, nullable=False),
        Column("result", BLOB, nullable=True),
        Column("created_at", BigInteger, nullable=False),
        UniqueConstraint("task_id", "revision", name=f"uq_{name}_task"),
        Index(f"ix_{name}_created", "created_at"),
    )


class Outbox:
    """One outbox: a table in `metadata`. `strict`: refuses what would commit by itself. `wake`: commits wake relays,
    through the ledger's store; `notify`: by PostgreSQL, those that listen."""

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
        self._ringer = Ringer(default_client) if wake else None
        self._gathered: WeakKeyDictionary[Session, Gathered] = WeakKeyDictionary()
        self._armed: WeakSet[Connection] = WeakSet()
        self._using: ContextVar[Any] = ContextVar("relier_outbox", default=None)
        use_outbox(self)

    # --- writing -------------------------------------------------------------------------------------------------

    def add(self, where: Any, task: Pushable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncTaskReceipt[R]:
        """A call of a task, accepted if and when the transaction of `where` commits."""
        return task.write_to(self, where, args, kwargs)

    async def aadd(self, where: Any, task: Pushable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> TaskReceipt[R]:
        """The same, for async code; an AsyncConnection needs it."""
        return await task.awrite_to(self, where, args, kwargs)

    def write(self, where: Any, rows: Sequence[NewRow]) -> None:
        """Rows for the transaction of `where`."""
        target = plain(where)
        if isinstance(target, AsyncConnection):
            raise ConfigurationError(
                "an AsyncConnection has to be awaited: use `await task.apush_in(connection, …)`, or "
                "`await outbox.aadd(connection, task, …)`; nothing was written"
            )
        if isinstance(target, Session):
            self._gathering(target).add(rows)
        else:
            self.insert(target, rows)
            self._ring_after(target)

    async def awrite(self, where: Any, rows: Sequence[NewRow]) -> None:
        target = plain(where)
        if isinstance(target, AsyncConnection):
            await target.run_sync(lambda connection: self.write(connection, rows))
        else:
            self.write(target, rows)

    def insert(self, connection: Connection, rows: Sequence[NewRow]) -> None:
        """One statement for all of them, or one for every 500: databases take only so many values at once."""
        if self._strict and commits_by_itself(connection):
            raise OutsideTransactionError(
                f"the connection is in AUTOCOMMIT mode, so {rows[0].name} would be sent whatever becomes of the rest; "
                f"nothing was written; begin a transaction, or make the outbox with strict=False"
            )
        for i in range(0, len(rows), AT_ONCE):
            values = [msgspec.structs.asdict(row) for row in rows[i : i + AT_ONCE]]
            connection.execute(insert(self.table).values(values))
        if self._notify and connection.dialect.name == "postgresql":
            connection.execute(_text(NOTIFY), {"channel": channel_of(self.table.name)})

    @contextmanager
    def using(self, where: Any) -> Iterator[None]:
        """Inside, what `.delay()` and `.apply_async()` of a Celery app with this outbox send is in the transaction."""
        token = self._using.set(plain(where))
        try:
            yield
        finally:
            self._using.reset(token)

    def pending(self, where: Any) -> list[NewRow]:
        """Rows of a session that its next commit will insert."""
        target = None if isinstance(where, Engine | AsyncEngine) else plain(where)
        gathered = self._gathered.get(target) if isinstance(target, Session) else None
        return [] if gathered is None else gathered.rows

    def current(self) -> Any:
        """The session or connection of `using`, if there is one."""
        return self._using.get()

    def ring(self) -> None:
        if self._ringer is not None:
            self._ringer.ring()

    def _gathering(self, session: Session) -> Gathered:
        if session not in self._gathered:
            self._gathered[session] = Gathered(self, session)
        return self._gathered[session]

    def _ring_after(self, connection: Connection) -> None:
        """SQLAlchemy tells of a commit just before it: the relay that wakes looks a few times."""
        if self._ringer is None or connection in self._armed:
            return
        self._armed.add(connection)

        def committing(committed: Connection) -> None:
            self._armed.discard(committed)
            self.ring()

        event.listen(connection, "commit", committing, once=True)

    # --- the schema ----------------------------------------------------------------------------------------------

    def validate_schema(self, bind: Engine | Connection) -> None:
        """Raises a ConfigurationError that says what of the table is missing or different, and what to do."""
        wrong = list(self._mismatches(bind))
        if wrong:
            raise ConfigurationError(
                f"the outbox table {self.table.name!r} does not fit: {'; '.join(wrong)}; migrate it: with Alembic, "
                f"`alembic revision --autogenerate` sees the difference"
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
                yield f"column {name} is not one of the outbox's, and may not be empty: no push could be written"
        indexes = inspector.get_indexes(self.table.name, schema=self.table.schema)
        indexed = {tuple(index["column_names"]) for index in indexes}
        for index in self.table.indexes:
            columns = tuple(column.name for column in index.columns)
            if columns not in indexed:
                yield f"the index on ({', '.join(columns)}) is missing"


@dataclass(slots=True)
class Entry:
    """A row, the transaction it was added in, and the one it was inserted in, if it was."""

    row: NewRow
    owner: SessionTransaction
    inserted_in: SessionTransaction | None = None


class Gathered:
    """Rows of one session until its transaction ends. The release of a savepoint inserts all there are, also those of
    the transactions around it; where one of these is rolled back, the others' rows are inserted again."""

    def __init__(self, outbox: Outbox, session: Session) -> None:
        self._outbox = ref(outbox)
        self._entries: list[Entry] = []
        self._closing = False  # a commit is under way: what is added now, by a listener, has no other to wait for
        self._session = ref(session)
        event.listen(session, "before_commit", self._commit)
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_soft_rollback", self._rolled_back)
        event.listen(session, "after_transaction_end", self._ended)

    def add(self, rows: Sequence[NewRow]) -> None:
        session = self._session()
        if session is None:
            return
        if not session.in_transaction():
            if not session.autobegin:
                raise OutsideTransactionError(
                    f"the session has not begun a transaction, and does not begin by itself; {rows[0].name} was not "
                    f"written; use `with session.begin():`"
                )
            session.begin()  # as `session.add` does
        owner = innermost(session)
        if owner is not None:
            self._entries += [Entry(row, owner) for row in rows]
        if self._closing or session._flushing:  # noqa: SLF001 - the flush of a commit comes after its last listener
            self._insert(session)

    @property
    def rows(self) -> list[NewRow]:
        """Those that are not inserted yet."""
        return [entry.row for entry in self._entries if entry.inserted_in is None]

    def _commit(self, session: Session) -> None:
        self._closing = True
        self._insert(session)

    def _insert(self, session: Session) -> None:
        waiting = [entry for entry in self._entries if entry.inserted_in is None]
        outbox = self._outbox()
        if waiting and outbox is not None:
            connection = session.connection(bind_arguments={"clause": outbox.table})
            outbox.insert(connection, [entry.row for entry in waiting])
            for entry in waiting:
                entry.inserted_in = innermost(session)

    def _committed(self, session: Session) -> None:
        outbox, released = self._outbox(), session.get_nested_transaction()
        if released is not None and released.parent is not None:
            self._pass_on(released, released.parent)
        elif self._entries and outbox is not None:
            self._entries.clear()
            outbox.ring()

    def _pass_on(self, released: SessionTransaction, outer: SessionTransaction) -> None:
        for entry in self._entries:
            entry.owner = outer if entry.owner is released else entry.owner
            entry.inserted_in = outer if entry.inserted_in is released else entry.inserted_in

    def _rolled_back(self, _: Session, ended: SessionTransaction) -> None:
        self._entries = [entry for entry in self._entries if not _is_within(entry.owner, ended)]
        for entry in self._entries:
            if entry.inserted_in is not None and _is_within(entry.inserted_in, ended):
                entry.inserted_in = None

    def _ended(self, _: Session, ended: SessionTransaction) -> None:
        if ended.nested or ended.parent is None:  # no flush's own
            self._closing = False
        if ended.parent is None:  # perhaps by `session.close()`, which is no rollback for SQLAlchemy's listeners
            self._entries.clear()


def innermost(session: Session) -> SessionTransaction | None:
    return session.get_nested_transaction() or session.get_transaction()


def _is_within(transaction: SessionTransaction, outer: SessionTransaction) -> bool:
    at: SessionTransaction | None = transaction
    while at is not None and at is not outer:
        at = at.parent
    return at is outer


def plain(where: Any) -> Any:
    """The session or connection itself: async ones have a plain one inside, scoped ones know the current one."""
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


def commits_by_itself(connection: Connection) -> bool:
    options = connection.get_execution_options()
    driver = connection.connection.dbapi_connection
    return options.get("isolation_level") == "AUTOCOMMIT" or getattr(driver, "autocommit", False) is True


# --- the inbox -------------------------------------------------------------------------------------------------------


class SessionBook:
    """The transaction of a session or a connection: the caller's where one has begun, else its own."""

    def __init__(self, target: Session | Connection) -> None:
        self._target = target
        self._own = False
        bind = target.get_bind() if isinstance(target, Session) else target
        self.dialect = _dialect(bind.dialect.name)

    def begin(self) -> None:
        self._own = not self._target.in_transaction()

    def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
        return self._target.execute(_text(sql), values).all()

    def change(self, sql: str, values: Mapping[str, Any]) -> int:
        return int(self._target.execute(_text(sql), values).rowcount)  # type: ignore[attr-defined]

    def end(self, *, well: bool) -> None:
        if self._own:
            (self._target.commit if well else self._target.rollback)()


def book_of(where: Any) -> SessionBook:
    target = plain(where)
    if isinstance(target, AsyncConnection) or isinstance(where, AsyncSession | async_scoped_session):
        raise ConfigurationError(f"use `async with ctx.exactly_once(…)` for {type(where).__name__}")
    return SessionBook(target)


# --- what a relay works on -------------------------------------------------------------------------------------------


@lru_cache(512)
def _text(sql: str) -> TextClause:
    return text(sql)


class EngineTransaction:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
        return self._connection.execute(_text(sql), values).all()

    def change(self, sql: str, values: Mapping[str, Any]) -> int:
        return self._connection.execute(_text(sql), values).rowcount


class EngineDatabase:
    """By an engine of the user's, or one of its own from a URL."""

    def __init__(self, engine: Engine | str) -> None:
        self._owned = isinstance(engine, str)
        made = create_engine(engine) if isinstance(engine, str) else engine
        self.dialect = _dialect(made.dialect.name)
        # MySQL's default locks the gaps between rows, and pushes would wait for a relay.
        self._engine = made.execution_options(isolation_level="READ COMMITTED") if self.dialect == "mysql" else made

    @contextmanager
    def begin(self) -> Iterator[EngineTransaction]:
        with self._engine.begin() as connection:
            yield EngineTransaction(connection)

    def close(self) -> None:
        if self._owned:
            self._engine.dispose()


class AsyncEngineDatabase:
    """By an async driver, for applications that have no other: in a loop of its own, which the relay's thread runs."""

    def __init__(self, engine: AsyncEngine | str) -> None:
        url = make_url(engine) if isinstance(engine, str) else engine.url
        self._runner = asyncio.Runner()
        self._engine = create_async_engine(url, poolclass=StaticPool)
        self.dialect = _dialect(self._engine.dialect.name)
        if self.dialect == "mysql":
            self._engine = self._engine.execution_options(isolation_level="READ COMMITTED")

    @contextmanager
    def begin(self) -> Iterator[AsyncTransaction]:
        run = self._runner.run
        connection = run(self._open())
        try:
            yield AsyncTransaction(connection, run)
        except BaseException:
            run(connection.rollback())
            raise
        else:
            run(connection.commit())
        finally:
            run(connection.close())

    async def _open(self) -> AsyncConnection:
        return await self._engine.connect()

    def close(self) -> None:
        self._runner.run(self._engine.dispose())
        self._runner.close()


class AsyncTransaction:
    def __init__(self, connection: AsyncConnection, run: Callable[[Any], Any]) -> None:
        self._connection = connection
        self._run = run

    def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
        return self._run(self._connection.execute(_text(sql), values)).all()  # type: ignore[no-any-return]

    def change(self, sql: str, values: Mapping[str, Any]) -> int:
        return int(self._run(self._connection.execute(_text(sql), values)).rowcount)


def notice_connector(url: str) -> Callable[[], Any]:
    """How a `NoticeListener` connects to the database of a URL."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "postgresql":
        raise ConfigurationError(f"--listen is for PostgreSQL, not for {parsed.get_backend_name()}; leave it out")
    try:
        import psycopg
    except ImportError as error:
        raise ConfigurationError(f"{error}; --listen needs `pip install relier[postgres]`") from error
    address = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
    return lambda: psycopg.connect(address, autocommit=True)


def database_of(given: Engine | AsyncEngine | str) -> EngineDatabase | AsyncEngineDatabase:
    """The database behind an engine or a URL, by a driver that blocks or one that awaits."""
    if isinstance(given, AsyncEngine):
        return AsyncEngineDatabase(given)
    if isinstance(given, str) and make_url(given).get_dialect().is_async:
        return AsyncEngineDatabase(given)
    return EngineDatabase(given)


def looking_through(bind: Any, look: Callable[[Transaction, str], R]) -> R:
    """What `look` answers, given a transaction of `bind` and its dialect: for tests. A session or connection sees what
    is not committed yet; async ones are looked at from outside, and see what is."""
    if isinstance(bind, async_scoped_session):
        bind = bind()
    if isinstance(bind, AsyncSession | AsyncConnection):
        bind = bind.bind if isinstance(bind, AsyncSession) else bind.engine
    if isinstance(bind, AsyncEngine):
        with ThreadPoolExecutor(1) as pool:  # the caller may be on an event loop: this needs another
            return pool.submit(_looking_into, bind, look).result()
    if isinstance(bind, Engine):
        return _looking_into(bind, look)
    book = book_of(bind)
    book.begin()
    try:
        found = look(book, book.dialect)
    except BaseException:
        book.end(well=False)
        raise
    book.end(well=True)
    return found


def _looking_into(engine: Engine | AsyncEngine, look: Callable[[Transaction, str], R]) -> R:
    database = database_of(engine)
    try:
        with database.begin() as tx:
            return look(tx, database.dialect)
    finally:
        database.close()
