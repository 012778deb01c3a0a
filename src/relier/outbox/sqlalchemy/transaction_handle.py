"""The transaction of a SQLAlchemy session or connection that the inbox writes its mark in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session

from relier.errors import ConfigurationError, ExactlyOnceError, OutsideTransactionError
from relier.outbox.inbox.transactions import ENDED_INSIDE, TransactionState
from relier.outbox.sqlalchemy.binds import databases_of
from relier.outbox.sqlalchemy.engines import EngineTransaction
from relier.outbox.sqlalchemy.failures import on_failure
from relier.outbox.sqlalchemy.outbox import SessionStatements, commits_by_itself, sync_target
from relier.outbox.table.contention import is_aborted, is_unknown_savepoint
from relier.outbox.table.statements import Transaction


class TransactionHandle(SessionStatements):
    """A transaction of its own; or a savepoint, if the caller has begun a transaction."""

    def __init__(self, target: Session | Connection) -> None:
        super().__init__(target)
        self._whole: Any = None
        self._watch: CommitWatch | None = None
        self.owns = True

    @property
    def state(self) -> TransactionState:
        return TransactionState.LOST if self._watch is None else self._watch.state

    def begin(self) -> None:
        self.owns = not self._is_begun()
        connection = self._connection()
        if commits_by_itself(connection):
            if self.owns:
                self._target.rollback()
            raise OutsideTransactionError(
                "the connection is in AUTOCOMMIT mode, so the mark of ctx.exactly_once would commit before the "
                "effects, and would stay if they fail; nothing was written; use an engine that begins transactions"
            )
        if self.owns:
            self._whole = connection.get_transaction() or connection.begin()
        else:
            begin_on_sqlite(connection)
            self._whole = self._target.begin_nested()
            self._connection()  # a session creates the savepoint at this call
        self._watch = CommitWatch(connection)

    def _connection(self) -> Connection:
        if isinstance(self._target, Session):
            return self._target.connection(bind_arguments=dict(self._where))
        return self._target

    def _is_begun(self) -> bool:
        """Return whether the caller has begun a transaction, on the session or on the connection that it is bound to.
        In the second case, a commit of the session would not commit the connection."""
        bound = isinstance(self._bind, Connection) and self._bind.in_transaction()
        return self._target.in_transaction() or bound

    def check(self) -> None:
        if not self._whole.is_active:
            raise ExactlyOnceError(ENDED_INSIDE, final=self.state is TransactionState.COMMITTED)
        try:
            self._release_savepoints()
        except Exception as error:
            if is_aborted(error) or is_unknown_savepoint(error):
                raise ExactlyOnceError(ENDED_INSIDE) from error
            raise

    def _release_savepoints(self) -> None:
        """Release savepoints that the block left open, as a commit would: from the innermost outwards. A database that
        releases an outer one first no longer knows those inside it."""
        while (inner := self._target.get_nested_transaction()) is not None and inner is not self._whole:
            inner.commit()

    def end(self, *, well: bool) -> None:
        if not well:
            self._undo()
            return
        try:
            (self._target if self.owns else self._whole).commit()
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        if self._watch is not None:
            self._watch.state = TransactionState.LOST
        self.close()
        if self.owns:
            self._target.rollback()
        else:
            with suppress(Exception):  # MySQL rolls back the whole transaction at a deadlock, including the savepoint
                self._whole.rollback()

    def ask_at_commit(self, is_there: Callable[[Transaction], bool]) -> None:
        """Check the mark at the commit.

        If the block owns the transaction, this is needed only on PostgreSQL, and only if listeners of the session can
        run before the commit. After an error in such a listener, the other databases report an error at the commit.
        """
        if self._watch is not None and (not self.owns or self._may_be_aborted()):
            self._watch.is_there = is_there

    def _may_be_aborted(self) -> bool:
        return self.dialect == "postgresql" and isinstance(self._target, Session)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()


class CommitWatch:
    """Watches the end of a connection's transaction, and of the savepoints that are open now. Later savepoints do not
    matter."""

    def __init__(self, connection: Connection) -> None:
        self.state = TransactionState.OPEN
        self.is_there: Callable[[Transaction], bool] = lambda _: True
        self._connection = connection
        self._root = connection.get_transaction()
        on_failure(connection, self._failed)
        around = set(savepoints_of(connection))
        self._listeners: dict[str, Callable[..., None]] = {
            "rollback_savepoint": lambda _, name, __: self._decide(TransactionState.LOST) if name in around else None,
            "commit": lambda _: self._committing(),
            "prepare_twophase": lambda _, __: self._preparing(),
            "commit_twophase": lambda _, __, prepared: (
                self._decide(TransactionState.COMMITTED) if prepared else self._committing()
            ),
            "rollback": lambda _: self._decide(TransactionState.LOST),
            "rollback_twophase": lambda _, __, ___: self._decide(TransactionState.LOST),
        }
        for name, listener in self._listeners.items():
            event.listen(connection, name, listener)

    def close(self) -> None:
        for name, listener in self._listeners.items():
            event.remove(self._connection, name, listener)
        self._listeners.clear()

    def _preparing(self) -> None:
        """Check the mark at the first of two phases: after that, no statement can be run."""
        if self.state is TransactionState.OPEN and not self._is_mark_there():
            self.state = TransactionState.LOST

    def _committing(self) -> None:
        """Record the commit."""
        if self.state is TransactionState.OPEN:
            self.state = TransactionState.COMMITTED if self._is_mark_there() else TransactionState.LOST

    def _is_mark_there(self) -> bool:
        """Return whether the transaction has the mark. If the mark cannot be read, treat it as lost: the next attempt
        will find it if it exists."""
        with suppress(Exception):
            return self.is_there(EngineTransaction(self._connection))
        return False

    def _decide(self, state: TransactionState) -> None:
        if self.state is TransactionState.OPEN:
            self.state = state

    def _failed(self, _: Connection, __: BaseException) -> None:
        """Correct the state if the commit failed: SQLAlchemy had reported the commit before it happened.

        After a successful commit, the connection is no longer in that transaction.
        """
        if self.state is TransactionState.COMMITTED and self._connection.get_transaction() is self._root:
            self.state = TransactionState.LOST


def begin_on_sqlite(connection: Connection) -> None:
    """Begin the transaction if Python's driver has not. The driver begins at the first write; a savepoint before that
    would be a transaction of its own, and its release a commit."""
    if connection.dialect.name == "sqlite" and not cast("Any", connection.connection.driver_connection).in_transaction:
        connection.exec_driver_sql("BEGIN")


def savepoints_of(connection: Connection) -> Iterator[str]:
    """Return the names of the open savepoints. SQLAlchemy reports a new savepoint before it has a name."""
    inner = connection.get_nested_transaction()
    while inner is not None:
        yield inner._savepoint  # noqa: SLF001
        inner = inner._previous_nested  # noqa: SLF001


def transaction_handle_of(where: Any) -> TransactionHandle:
    target = sync_target(where)
    if isinstance(target, AsyncConnection) or isinstance(where, AsyncSession | async_scoped_session):
        raise ConfigurationError(f"use `async with ctx.exactly_once(…)` for {type(where).__name__}")
    if isinstance(target, Session) and len(databases_of(target)) > 1:
        raise ConfigurationError(
            "the session is bound to several databases, and a mark protects only the effects in its own database; "
            "nothing was written; choose one: `ctx.exactly_once(session.connection(bind_arguments={'mapper': "
            "Payment}))`, and commit the session after the block"
        )
    return TransactionHandle(target)
