"""The tables of the outbox and the inbox, in the user's MetaData, so that Alembic sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
)
from sqlalchemy.dialects.mysql import LONGBLOB
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from relier.outbox.inbox.marks import DEFAULT_INBOX
from relier.outbox.push import DEFAULT_TABLE
from relier.outbox.table.names import table_parts
from relier.outbox.table.statements import NOW_MS

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler


class DatabaseNowMs(FunctionElement[int]):
    """The database's own time, in ms."""

    type = BigInteger()
    inherit_cache = True


@compiles(DatabaseNowMs)
def _now_ms(_: DatabaseNowMs, compiler: SQLCompiler, **__: Any) -> str:
    return NOW_MS[dialect_of(compiler.dialect.name)].replace("%", "%%")


def dialect_of(name: str) -> str:
    return "mysql" if name == "mariadb" else name


BLOB = LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")
NUMBER = BigInteger().with_variant(Integer(), "sqlite")  # SQLite increments only an INTEGER primary key by itself


# On PostgreSQL, a claim rewrites a row in its page without touching an index, as long as the page has room. Alembic
# sees a table option; SQLAlchemy 2.0 does not have this one.
FILLFACTOR = 50
HAS_STORAGE_OPTIONS = any(
    issubclass(Table, made) and "with" in options for made, options in PGDialect.construct_arguments
)


# MyISAM and Aria, which a server may have as its default, keep rows of a transaction that was rolled back.
TRANSACTIONAL = "InnoDB"
ENGINE: dict[str, Any] = {"mysql_engine": TRANSACTIONAL, "mariadb_engine": TRANSACTIONAL}


def outbox_table(metadata: MetaData, name: str = DEFAULT_TABLE) -> Table:
    """Declare the table of an outbox. `name` may include the schema."""
    schema, name = table_parts(name)
    options = ENGINE | ({"postgresql_with": {"fillfactor": FILLFACTOR}} if HAS_STORAGE_OPTIONS else {})
    table = Table(
        name,
        metadata,
        Column("id", NUMBER, primary_key=True, autoincrement=True),
        Column("task_id", String(64), nullable=False),
        Column("kind", String(16), nullable=False),
        Column("name", String(255), nullable=False),
        Column("queue", String(255), nullable=False),
        Column("order_key", String(255), nullable=False, server_default=""),
        Column("body", BLOB, nullable=False),
        Column("created_at", BigInteger, nullable=False, default=DatabaseNowMs()),
        Column("due_at", BigInteger, nullable=False, default=DatabaseNowMs()),
        Column("leased_by", String(64), nullable=False, server_default=""),
        Column("leased_at", BigInteger, nullable=False, server_default="0"),
        Column("claims", Integer, nullable=False, server_default="0"),
        Column("retries", Integer, nullable=False, server_default="0"),
        Column("dead", SmallInteger, nullable=False, server_default="0"),
        Column("died_at", BigInteger, nullable=False, server_default="0"),
        Column("error", Text, nullable=True),
        Index(f"ix_{name}_due", "dead", "due_at", "id"),
        Index(f"ix_{name}_order", "order_key", "id"),
        schema=schema,
        **options,
    )
    if not HAS_STORAGE_OPTIONS:
        leave_room: Any = DDL(f"ALTER TABLE %(fullname)s SET (fillfactor = {FILLFACTOR})")  # type: ignore[no-untyped-call]
        event.listen(table, "after_create", leave_room.execute_if(dialect="postgresql"))
    return table


def inbox_table(metadata: MetaData, name: str = DEFAULT_INBOX) -> Table:
    """Declare the table of the marks that `ctx.exactly_once` writes. `name` may include the schema."""
    schema, name = table_parts(name)
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
        schema=schema,
        **ENGINE,
    )
