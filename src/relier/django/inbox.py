"""`with ctx.exactly_once("default"):` in a `def` task: the mark is in the database that the effects are in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from relier.django.database import DjangoTransaction
from relier.django.outbox import connection_of


class DjangoBook:
    """The caller's `atomic` where there is one, else its own."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.dialect: str = connection.vendor
        self._connection = connection
        self._statements = DjangoTransaction(connection)
        self._own: Any = None

    def begin(self) -> None:
        if not self._connection.in_atomic_block:
            self._connection.close_if_unusable_or_obsolete()  # a worker has no requests, at whose end Django does it
            self._own = transaction.atomic(using=self._connection.alias)
            self._own.__enter__()

    def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
        return self._statements.run(sql, values)

    def change(self, sql: str, values: Mapping[str, Any]) -> int:
        return self._statements.change(sql, values)

    def end(self, *, well: bool) -> None:
        own, self._own = self._own, None
        if own is not None:
            if not well:
                transaction.set_rollback(True, using=self._connection.alias)
            own.__exit__(None, None, None)


def book_of(where: Any) -> DjangoBook:
    return DjangoBook(connection_of(where))
