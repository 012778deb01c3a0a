"""Pushes from Django: rows are inserted at once, on the connection of the surrounding `atomic`.

A savepoint that rolls back removes its rows, because they were written inside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import ConnectionProxy, connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import DEFAULT_DB_ALIAS

from relier.django.models import NowMs, OutboxRow
from relier.errors import ConfigurationError, OutsideTransactionError
from relier.outbox.push import set_in_context
from relier.outbox.row import NewRow, inserts_of
from relier.outbox.wake.doorbell import Doorbell
from relier.outbox.wake.postgres_notify import channel_of
from relier.submit.client import default_client

if TYPE_CHECKING:
    from relier.submit.receipt import SyncTaskReceipt, TaskReceipt
    from relier.task.pushable import Pushable

P = ParamSpec("P")
R = TypeVar("R")

# Settings of the project.
STRICT = "RELIER_OUTBOX_STRICT"  # True: refuse pushes outside a transaction
WAKE = "RELIER_OUTBOX_WAKE"  # True: commits wake a relay through the ledger's store
NOTIFY = "RELIER_OUTBOX_NOTIFY"  # False. True: on PostgreSQL, commits also wake relays with --listen


class DjangoOutbox:
    """The outbox of a Django project: at most one table in each database.

    `where`: the alias of a database, its connection, or None for the default database.
    """

    def __init__(self) -> None:
        self._using: ContextVar[str | None] = ContextVar("relier_django_outbox", default=None)
        self._ring = Doorbell(default_client).ring  # one bound method, so that `_ring_after` can recognise it

    def add(self, where: Any, task: Pushable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncTaskReceipt[R]:
        """Push a call of a task. It is accepted if and when the transaction commits."""
        return task.write_to(self, where, args, kwargs)

    async def aadd(self, where: Any, task: Pushable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> TaskReceipt[R]:
        """Push a call of a task from async code, as `add` does."""
        return await task.awrite_to(self, where, args, kwargs)

    def write(self, where: Any, rows: Sequence[NewRow]) -> None:
        """Insert rows in the transaction of `where`, in one statement or a few. Its commit wakes a relay."""
        connection = connection_of(where)
        manual = not connection.in_atomic_block and not connection.get_autocommit()
        if is_strict() and not connection.in_atomic_block and not manual:
            raise OutsideTransactionError(
                f"no transaction is open on database {connection.alias!r}, so {rows[0].name} would be sent even if the "
                f"rest fails; nothing was written; push inside `transaction.atomic(using={connection.alias!r})`, or "
                f"set {STRICT} = False"
            )
        if is_strict() and connection.in_atomic_block and has_lost_transaction(connection):
            raise OutsideTransactionError(
                f"an error has ended the transaction on database {connection.alias!r}, so {rows[0].name} would be sent "
                f"even if the rest fails; nothing was written; let such errors leave the `atomic` block"
            )
        with transaction.atomic(using=connection.alias, savepoint=False) if len(rows) > 1 else nullcontext():
            for some in inserts_of(rows):
                OutboxRow.objects.using(connection.alias).bulk_create(
                    [OutboxRow(**msgspec.structs.asdict(row), created_at=NowMs(), due_at=NowMs()) for row in some]
                )
        if getattr(settings, NOTIFY, False) and connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_notify(%s, '')", [channel_of(OutboxRow._meta.db_table)])
        # Django does not report a manual commit: a relay finds those rows by polling.
        if getattr(settings, WAKE, True) and not manual:
            self._ring_after(connection)

    async def awrite(self, where: Any, rows: Sequence[NewRow]) -> None:
        """Write in the thread that entered the surrounding `atomic`: a connection belongs to its thread."""
        await sync_to_async(self.write, thread_sensitive=True)(where, rows)

    @contextmanager
    def using(self, where: Any) -> Iterator[None]:
        """Inside the block, `.delay()` and `.apply_async()` of a Celery app with this outbox write to this database."""
        with set_in_context(self._using, connection_of(where).alias):
            yield

    def current(self) -> str | None:
        """Return the database whose transaction a Celery message joins.

        This is, in this order: the database given to `using`; the default database, if it has an open transaction; the
        only other database with an open transaction. Databases that a router excludes do not count. Async code has no
        open transaction, so only `using` applies there.
        """
        if self._using.get() is not None:
            return self._using.get()
        begun = [
            alias
            for alias in connections
            if connections[alias].in_atomic_block and router.allow_migrate_model(alias, OutboxRow)
        ]
        if DEFAULT_DB_ALIAS in begun or not begun:
            return DEFAULT_DB_ALIAS if begun else None
        if len(begun) > 1:
            raise ConfigurationError(
                f"transactions are open on {', '.join(map(repr, begun))}, so the outbox cannot choose one for this "
                f"message; nothing was sent; choose with `with outbox.using(alias):`"
            )
        return str(begun[0])

    def _ring_after(self, connection: BaseDatabaseWrapper) -> None:
        """Ring once per transaction, at its commit.

        One ring serves all rows of the transaction. If the rollback of a savepoint cancels the ring, it also removes
        the rows that the ring was for.
        """
        if not any(planned[1] is self._ring for planned in connection.run_on_commit):
            transaction.on_commit(self._ring, using=connection.alias, robust=True)


def connection_of(where: Any) -> BaseDatabaseWrapper:
    """Return this thread's connection to a database."""
    alias = DEFAULT_DB_ALIAS if where is None else where
    if isinstance(where, ConnectionProxy | BaseDatabaseWrapper):
        alias = where.alias
    if not isinstance(alias, str) or alias not in connections:
        known = ", ".join(repr(one) for one in connections)
        raise ConfigurationError(
            f"push_in takes the alias of a Django database ({known}), its connection, or None for the default one, "
            f"not {where!r:.60}; nothing was written"
        )
    ours: BaseDatabaseWrapper = connections[alias]
    if isinstance(where, BaseDatabaseWrapper) and where is not ours:
        raise ConfigurationError(
            f"this connection to {alias!r} belongs to another thread; nothing was written; pass the alias instead"
        )
    return ours


def has_lost_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Return whether SQLite has rolled back the transaction of an `atomic` block at an error, as with OR ROLLBACK. From
    then on, each statement commits on its own."""
    if connection.vendor != "sqlite":
        return False
    driver: Any = connection.connection
    return driver.isolation_level is None and not driver.in_transaction


def is_strict() -> bool:
    """Return whether pushes outside a transaction are refused."""
    return bool(getattr(settings, STRICT, True))


outbox = DjangoOutbox()
