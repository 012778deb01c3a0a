"""`with ctx.exactly_once("default"):` in a `def` task. The mark is in the same database as the effects."""

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
    """Open a new `atomic` block. If the caller is already in an `atomic` block, the new one is a savepoint."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection)
        self.dialect: str = connection.vendor
        self.owns = True
        self._state = TransactionState.LOST
        self._atomic: Any = None
        self._depth = 0
        self._is_there: Callable[[Transaction], bool] = lambda _: True

    @property
    def state(self) -> TransactionState:
        if self._state is TransactionState.OPEN and self._has_committed_in_test_case():
            return TransactionState.COMMITTED
        return self._state

    def _has_committed_in_test_case(self) -> bool:
        """Return whether the block has committed, except for the transaction of Django's `TestCase`, which never
        commits.

        Django ignores that transaction for `atomic(durable=True)`, too. If a savepoint was rolled back, our hook is
        gone.
        """
        blocks = self._connection.atomic_blocks
        in_test_case = bool(blocks) and getattr(blocks[-1], "_from_testcase", False)
        return in_test_case and any(hook == self._committed for _, hook, *_ in self._connection.run_on_commit)

    def begin(self) -> None:
        self.owns = not self._connection.in_atomic_block
        if self.owns:
            if not self._connection.get_autocommit():  # closing it would roll back the caller's transaction
                raise ConfigurationError(
                    f"database {self._connection.alias!r} has AUTOCOMMIT off, where Django does not report commits; "
                    f"nothing was written; turn AUTOCOMMIT on, and use transaction.atomic()"
                )
            self._connection.close_if_unusable_or_obsolete()  # Django does it after a request; a worker has none
        self._state = TransactionState.OPEN
        self._atomic = transaction.atomic(using=self._connection.alias)
        self._atomic.__enter__()
        self._depth = len(self._connection.atomic_blocks)
        transaction.on_commit(self._committed, using=self._connection.alias)
        hooks = self._connection.run_on_commit
        hooks.insert(0, hooks.pop())  # first: a hook of the caller that raises prevents the calls of those behind it

    def _committed(self) -> None:
        """Record the commit. If the mark cannot be read, treat it as lost: the next attempt will find it if it
        exists."""
        self._state = TransactionState.LOST
        with suppress(Exception):
            self._state = TransactionState.COMMITTED if self._is_there(self) else TransactionState.LOST

    def ask_at_commit(self, is_there: Callable[[Transaction], bool]) -> None:
        """Check the mark at the commit. A transaction that the block owns needs no check: nothing runs between the last
        check and the commit."""
        if not self.owns:
            self._is_there = is_there

    def check(self) -> None:
        whole = (
            len(self._connection.atomic_blocks) == self._depth and self._connection.atomic_blocks[-1] is self._atomic
        )
        if not whole or self._connection.needs_rollback:
            raise ExactlyOnceError(ENDED_INSIDE)

    def end(self, *, well: bool) -> None:
        if not well:
            self._state = TransactionState.LOST
            transaction.set_rollback(True, using=self._connection.alias)
        self._atomic.__exit__(None, None, None)

    def close(self) -> None: ...


def transaction_handle_of(where: Any) -> DjangoTransactionHandle:
    return DjangoTransactionHandle(connection_of(where))
