"""The way into the outbox for Django: rows are inserted at once, on the connection of the surrounding `atomic`.

A savepoint that is rolled back takes its rows along, for they were written inside it. One write is one insert.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from relier.outbox.row import NewRow
from relier.outbox.wake.doorbell import Doorbell
from relier.outbox.wake.postgres_notify import channel_of
from relier.submit.client import default_client

if TYPE_CHECKING:
    from relier.submit.receipt import SyncTaskReceipt, TaskReceipt
    from relier.task import Pushable

P = ParamSpec("P")
R = TypeVar("R")

# Settings of the project.
STRICT = "RELIER_OUTBOX_STRICT"  # True: what would commit by itself is refused
WAKE = "RELIER_OUTBOX_WAKE"  # True: commits wake a relay
NOTIFY = "RELIER_OUTBOX_NOTIFY"  # False. True: on PostgreSQL, commits also wake relays with --listen


class DjangoOutbox:
    """The outbox of a Django project: one table in each database that has one.

    `where` is a database's alias, its connection, or None for the default one.
    """

    def __init__(self) -> None:
        self._using: ContextVar[str | None] = ContextVar("relier_django_outbox", default=None)
        self._ring = Doorbell(default_client).ring  # one bound method: `on_commit` is asked whether it is there

    def add(self, where: Any, task: Pushable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncTaskReceipt[R]:
        """A call of a task, accepted if and when the transaction commits."""
        return task.write_to(self, where, args, kwargs)

    async def aadd(self, where: Any, task: Pushable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> TaskReceipt[R]:
        """The same, for async code."""
        return await task.awrite_to(self, where, args, kwargs)

    def write(self, where: Any, rows: Sequence[NewRow]) -> None:
        """Rows for the transaction of `where`, in one insert. A relay is woken when it has committed."""
        connection = connection_of(where)
        manual = not connection.in_atomic_block and not connection.get_autocommit()
        if is_strict() and not connection.in_atomic_block and not manual:
            raise OutsideTransactionError(
                f"no transaction is open on database {connection.alias!r}, so {rows[0].name} would be sent whatever "
                f"becomes of the rest; nothing was written; push inside `transaction.atomic(using="
                f"{connection.alias!r})`, or set {STRICT} = False"
            )
        OutboxRow.objects.using(connection.alias).bulk_create(
            [OutboxRow(**msgspec.structs.asdict(row), created_at=NowMs(), due_at=NowMs()) for row in rows]
        )
        if getattr(settings, NOTIFY, False) and connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_notify(%s, '')", [channel_of(OutboxRow._meta.db_table)])
        if getattr(settings, WAKE, True) and not manual:  # there Django tells of no commit: a relay that polls finds it
            self._ring_after(connection)

    async def awrite(self, where: Any, rows: Sequence[NewRow]) -> None:
        """In the thread that the surrounding `atomic` was entered in: a connection is its thread's."""
        await sync_to_async(self.write, thread_sensitive=True)(where, rows)

    @contextmanager
    def using(self, where: Any) -> Iterator[None]:
        """Inside, what `.delay()` and `.apply_async()` of a Celery app with this outbox send is in this database."""
        with set_in_context(self._using, connection_of(where).alias):
            yield

    def current(self) -> str | None:
        """The database whose transaction a Celery message is to be part of: that of `using`; the default one, if a
        transaction is open there; the only other one where one is. A database that a router keeps the outbox out of
        does not count. In async code, which has none, there is only `using`."""
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
                f"transactions are open on {', '.join(map(repr, begun))}; say which one this message is part of, with "
                f"`with outbox.using(alias):`; nothing was sent"
            )
        return str(begun[0])

    def _ring_after(self, connection: BaseDatabaseWrapper) -> None:
        """Once a transaction. A ring that is planned already is taken back only by a rollback that takes these rows
        along, too: it was planned in the same savepoints, or in some that are released."""
        if not any(planned[1] is self._ring for planned in connection.run_on_commit):
            transaction.on_commit(self._ring, using=connection.alias, robust=True)


def connection_of(where: Any) -> BaseDatabaseWrapper:
    """This thread's connection to a database."""
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
            f"this connection to {alias!r} is another thread's; nothing was written; give the alias instead"
        )
    return ours


def is_strict() -> bool:
    """Whether a push outside a transaction is refused."""
    return bool(getattr(settings, STRICT, True))


outbox = DjangoOutbox()
