"""Rows that are pending in a SQLAlchemy session until the transaction or savepoint they were pushed in commits."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet, ref

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.util.concurrency import in_greenlet

from relier.errors import ConfigurationError, OutsideTransactionError
from relier.outbox.row import NewRow
from relier.outbox.sqlalchemy.binds import acquired_by, bind_arguments_for
from relier.outbox.sqlalchemy.failures import on_failure
from relier.outbox.table.contention import is_timed_out, is_undone

if TYPE_CHECKING:
    from relier.outbox.sqlalchemy.outbox import Outbox

log = logging.getLogger("relier.outbox")

NAMED = 10  # dropped tasks that a warning names
MUST_BE_AWAITED = (
    "this push is inside a savepoint that was begun on the connection, whose end its session does not see, "
    "so the row must be inserted at once, which has to be awaited; nothing was written; use `await "
    "task.apush_in(session, …)`, or begin the savepoint with `session.begin_nested()`"
)


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A row that is not yet inserted, and the transaction or savepoint it was pushed in."""

    row: NewRow
    owner: SessionTransaction


@dataclass(frozen=True, slots=True)
class InsertedRow:
    """The name of a row that is inserted and not committed, without its body, and the transaction or savepoint that it
    belongs to."""

    name: str
    task_id: str
    owner: SessionTransaction


class PendingRows:
    """The rows of one session that are not yet inserted.

    A row is inserted inside the transaction or savepoint it was pushed in: just before that commits, or before another
    savepoint opens inside it. From then on the database decides. A row that is still pending when its transaction ends
    is dropped, however the transaction ended: SQLAlchemy reports every end to its listeners, but not every rollback.
    The session's connection is watched, too: it may commit, or open savepoints, without the session.
    """

    def __init__(self, outbox: Outbox, session: Session) -> None:
        self._outbox = ref(outbox)
        self._session = ref(session)
        self._pending: list[PendingRow] = []
        self._dropped: list[NewRow] = []  # with a savepoint; whether anyone asked for a rollback is not yet known
        # Kept for a warning, where an error may roll back the whole transaction.
        self._inserted: list[InsertedRow] = []
        self._undone: list[
            NewRow | InsertedRow
        ] = []  # the database has rolled back the transaction that they were pushed in
        self._wrote = False
        self._had_begun = False  # SQLite, before the last statement
        self._watched: WeakSet[Connection] = WeakSet()
        # Commits in progress, including savepoints of listeners. A row that is added now has no later event.
        self._closing: set[SessionTransaction | None] = set()
        event.listen(session, "after_begin", lambda _, __, connection: self._watch(connection))
        event.listen(session, "after_transaction_create", self._began)
        event.listen(session, "before_commit", self._commit)
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_rollback", self._rolled_back)
        event.listen(session, "after_transaction_end", self._ended)

    def add(self, rows: Sequence[NewRow]) -> None:
        session = self._session()
        if session is None:
            return
        if not session.in_transaction():
            if not session.autobegin:
                raise OutsideTransactionError(
                    f"the session has not begun a transaction, and autobegin is off; {rows[0].name} was not written; "
                    f"use `with session.begin():`"
                )
            session.begin()  # as `session.add` does
        owner, outbox = innermost(session), self._outbox()
        if owner is None or outbox is None or self._cannot_wait(session):
            self._insert(owner, rows)
        else:
            outbox.check(session, rows)
            self._pending += [PendingRow(row, owner) for row in rows]

    @property
    def rows(self) -> list[NewRow]:
        """Return the rows that are not yet inserted."""
        return [entry.row for entry in self._pending]

    def _cannot_wait(self, session: Session) -> bool:
        """Return whether rows must be inserted at once.

        During a commit or a flush, the last event that would insert them may already have passed. A session that joined
        a connection's transaction does not see the end of that transaction, unless the session made its own savepoint.
        """
        if self._closing or session._flushing:  # noqa: SLF001 - the flush of a commit comes after its last listener
            return True
        outbox = self._outbox()
        bind = None if outbox is None else session.get_bind(**bind_arguments_for(session, outbox.table))
        connection = None if bind is None else acquired_by(session, bind)
        if connection is not None:
            self._watch(connection)
            if is_in_foreign_savepoint(session, connection):
                if not may_block(connection):
                    raise ConfigurationError(MUST_BE_AWAITED)
                return True
        if not isinstance(bind, Connection):
            return False
        if session.join_transaction_mode != "create_savepoint" and may_block(bind):
            return True
        self._watch(bind)
        return False

    def _watch(self, connection: Connection) -> None:
        if connection in self._watched:
            return
        self._watched.add(connection)
        event.listen(connection, "savepoint", self._savepoint_opens)
        event.listen(connection, "commit", self._connection_commits)
        if connection.dialect.name == "sqlite":
            event.listen(connection, "before_cursor_execute", self._executing)
        on_failure(connection, self._failed)

    def _savepoint_opens(self, connection: Connection, _: str | None) -> None:
        """Insert pending rows before the connection opens its own savepoint: rows pushed earlier do not belong to it.

        If the session itself opens the savepoint, there is nothing to do here: `_began` has already inserted the rows.
        This case is recognised because the session's innermost transaction does not hold the connection yet.
        """
        session = self._session()
        at = None if session is None else innermost(session)
        if at is not None and connection in at._connections:  # noqa: SLF001 - public since SQLAlchemy 2.1.7
            self._insert(at)

    def _connection_commits(self, _: Connection) -> None:
        """Insert pending rows when the connection commits without its session."""
        session, outbox = self._session(), self._outbox()
        if session is not None and outbox is not None and self._pending:
            self._insert(innermost(session))
            outbox.ring()
        self._inserted.clear()

    def _executing(self, connection: Connection, *_: Any) -> None:
        self._had_begun = has_begun_on_sqlite(connection)

    def _failed(self, connection: Connection, error: BaseException) -> None:
        """Drop rows that were pushed before an error with which the database has rolled back their transaction. Code
        that catches the error commits the rest without them."""
        if self._has_ended(connection, error):
            self._undone += [*self._inserted, *self.rows]
            self._inserted.clear()
            self._pending.clear()

    def _has_ended(self, connection: Connection, error: BaseException) -> bool:
        """Return whether an error has ended the transaction, while the connection accepts further statements."""
        if connection.dialect.name == "sqlite":  # OR ROLLBACK, RAISE(ROLLBACK, …), a full disk
            return self._had_begun and not has_begun_on_sqlite(connection)
        return is_undone(error) or (is_timed_out(error) and rolls_back_on_timeout(connection))

    def _insert(self, transaction: SessionTransaction | None, more: Sequence[NewRow] = ()) -> None:
        """Insert the pending rows, then `more`, in the order of the pushes."""
        rows, outbox = [*self.rows, *more], self._outbox()
        if not rows or outbox is None or transaction is None:
            return
        where = bind_arguments_for(transaction.session, outbox.table)
        connection = transaction.connection(None, **where)
        outbox.insert(connection, rows)
        if connection.dialect.name != "postgresql":  # which accepts no statement after an error
            added = [*self._pending, *(PendingRow(row, transaction) for row in more)]
            self._inserted += [InsertedRow(one.row.name, one.row.task_id, one.owner) for one in added]
        self._pending.clear()
        self._wrote = True
        if isinstance(transaction.session.get_bind(**where), Connection):
            outbox.ring_after(connection)

    def _began(self, _: Session, begun: SessionTransaction) -> None:
        """Insert before a savepoint opens: rows pushed earlier belong to the transaction around it."""
        if begun.nested:
            self._insert(begun.parent)

    def _commit(self, session: Session) -> None:
        at = innermost(session)
        self._closing.add(at)
        self._insert(at)

    def _committed(self, session: Session) -> None:
        released = session.get_nested_transaction()
        if released is not None:
            around = cast("SessionTransaction", released.parent)
            self._inserted = [
                replace(entry, owner=around) if entry.owner is released else entry for entry in self._inserted
            ]
            return
        outbox = self._outbox()
        if self._wrote and outbox is not None:
            outbox.ring()
        self._dropped.clear()
        if self._undone:
            log.warning(
                "transaction committed after the database had rolled it back at an error, such as a deadlock: "
                "dropped=%d tasks=%s; these tasks will not be sent; let such errors end the transaction, and begin it "
                "again",
                len(self._undone),
                named(self._undone),
            )

    def _rolled_back(self, session: Session) -> None:
        """Drop rows without a warning: the caller asked for the rollback."""
        at = innermost(session)
        self._dropped.clear()
        self._pending = [entry for entry in self._pending if at is not None and entry.owner is not at]

    def _ended(self, _: Session, ended: SessionTransaction) -> None:
        self._closing.discard(ended)
        self._dropped += [entry.row for entry in self._pending if entry.owner is ended]
        self._pending = [entry for entry in self._pending if entry.owner is not ended]
        self._inserted = [entry for entry in self._inserted if entry.owner is not ended]
        if ended.parent is None:
            self._warn_of_dropped()
            self._wrote = False
            self._dropped.clear()
            self._undone.clear()
            # An earlier listener of this end may have begun the next transaction, and pushed in it.
            self._inserted = [entry for entry in self._inserted if outermost(entry.owner) is not ended]
            self._pending = [entry for entry in self._pending if outermost(entry.owner) is not ended]

    def _warn_of_dropped(self) -> None:
        """Warn of rows that were dropped although nobody asked for a rollback, because the caller holds their receipts.
        An exception that closes the session counts as a request to roll back."""
        rows = self._dropped
        if not rows or sys.exc_info()[0] is not None:
            return
        log.warning(
            "session closed without a commit after its last push: dropped=%d tasks=%s; these tasks will not be sent; "
            "commit after the last push, or call session.rollback() to discard them",
            len(rows),
            named(rows),
        )


def named(rows: Sequence[NewRow | InsertedRow]) -> str:
    """Return the names and ids of the first rows, for a warning."""
    first = ", ".join(f"{row.name} {row.task_id}" for row in rows[:NAMED])
    return f"{first}, …" if len(rows) > NAMED else first


def is_in_foreign_savepoint(session: Session, connection: Connection) -> bool:
    """Return whether the innermost savepoint of a session's connection was opened on the connection itself, so that the
    session does not see its end."""
    inner = connection.get_nested_transaction()
    level = innermost(session)
    while inner is not None and level is not None:
        if any(held[1] is inner for held in level._connections.values()):  # noqa: SLF001 - see acquired_by
            return False
        level = level.parent
    return inner is not None


def innermost(session: Session) -> SessionTransaction | None:
    """Return the innermost open transaction or savepoint of a session."""
    return session.get_nested_transaction() or session.get_transaction()


def outermost(transaction: SessionTransaction) -> SessionTransaction:
    """Return the transaction that contains a savepoint, at any depth. For a transaction, return the transaction."""
    while transaction.parent is not None:
        transaction = transaction.parent
    return transaction


def may_block(connection: Connection) -> bool:
    """Return whether a statement can run now. An async driver needs one of SQLAlchemy's greenlets."""
    return not connection.dialect.is_async or in_greenlet()


def has_begun_on_sqlite(connection: Connection) -> bool:
    """Return whether SQLite itself is in a transaction."""
    return bool(cast("Any", connection.connection.driver_connection).in_transaction)


def rolls_back_on_timeout(connection: Connection) -> bool:
    """Return whether MySQL or MariaDB rolls back the whole transaction, not just the statement, when a wait for a lock
    times out."""
    with suppress(Exception), closing(connection.connection.cursor()) as cursor:
        cursor.execute("SELECT @@innodb_rollback_on_timeout")
        return bool(cursor.fetchall()[0][0])
    return False
