"""`with ctx.exactly_once("default"):` in a `def` task: the mark is in the database that the effects are in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from relier.django.database import DjangoTransaction
from relier.django.outbox import connection_of
from relier.errors import ConfigurationError, ExactlyOnceError
from relier.outbox.inbox.transactions import ENDED_INSIDE, TransactionState
from relier.outbox.table.statements import Transaction


class DjangoTransactionHandle(DjangoTransaction):
    """An `atomic` of its own; inside one of the caller's, that is a savepoint."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection)
        self.dialect: str = connection.vendor
        self.owns = True
        self.state = TransactionState.LOST
        self._atomic: Any = None
        self._depth = 0
        self._is_there: Callable[[Transaction], bool] = lambda _: True

    def begin(self) -> None:
        self.owns = not self._connection.in_atomic_block
        if self.owns:
            if not self._connection.get_autocommit():  # to close it would roll back what the caller has begun
                raise ConfigurationError(
                    f"database {self._connection.alias!r} has AUTOCOMMIT off, where Django does not tell what is "
                    f"committed; nothing was written; turn it on, and use transaction.atomic()"
                )
            self._connection.close_if_unusable_or_obsolete()  # a worker has no requests, at whose end Django does it
        self.state = TransactionState.OPEN
        self._atomic = transaction.atomic(using=self._connection.alias)
        self._atomic.__enter__()
        self._depth = len(self._connection.atomic_blocks)
        transaction.on_commit(self._committed, using=self._connection.alias)

    def _committed(self) -> None:
        """Where nobody can tell, it is taken for lost: another attempt finds the mark, if there is one."""
        self.state = TransactionState.LOST
        with suppress(Exception):
            self.state = TransactionState.COMMITTED if self._is_there(self) else TransactionState.LOST

    def ask_at_commit(self, is_there: Callable[[Transaction], bool]) -> None:
        self._is_there = is_there

    def check(self) -> None:
        whole = (
            len(self._connection.atomic_blocks) == self._depth and self._connection.atomic_blocks[-1] is self._atomic
        )
        if not whole or self._connection.needs_rollback:
            raise ExactlyOnceError(ENDED_INSIDE)

    def end(self, *, well: bool) -> None:
        if not well:
            self.state = TransactionState.LOST
            transaction.set_rollback(True, using=self._connection.alias)
        self._atomic.__exit__(None, None, None)

    def close(self) -> None: ...


def transaction_handle_of(where: Any) -> DjangoTransactionHandle:
    return DjangoTransactionHandle(connection_of(where))
