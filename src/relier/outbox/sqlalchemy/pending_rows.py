"""Rows that wait in a SQLAlchemy session, each for the end of the transaction or savepoint it was pushed in."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakSet, ref

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.util.concurrency import in_greenlet

from relier.errors import OutsideTransactionError
from relier.outbox.row import NewRow
from relier.outbox.sqlalchemy.binds import bind_arguments_for

if TYPE_CHECKING:
    from relier.outbox.sqlalchemy.outbox import Outbox

log = logging.getLogger("relier.outbox")

NAMED = 10  # so many of the tasks that are dropped are named


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A row that is not inserted yet, and the transaction or savepoint it was pushed in."""

    row: NewRow
    owner: SessionTransaction


class PendingRows:
    """The rows of one session that are not inserted yet.

    A row is inserted inside the transaction or savepoint it was pushed in: just before that commits, or before another
    savepoint opens inside it. From then on the database decides. A row that is still here when its transaction ends is
    dropped, however that ended: SQLAlchemy reports every end to its listeners, but not every rollback.
    """

    def __init__(self, outbox: Outbox, session: Session) -> None:
        self._outbox = ref(outbox)
        self._session = ref(session)
        self._pending: list[PendingRow] = []
        self._dropped: list[NewRow] = []  # with a savepoint; it is not known yet whether anyone asked for a rollback
        self._wrote = False
        self._watched: WeakSet[Connection] = WeakSet()
        # Commits under way, a listener's savepoints among them: what is added now has no other to wait for.
        self._closing: set[SessionTransaction | None] = set()
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
                    f"the session has not begun a transaction, and does not begin by itself; {rows[0].name} was not "
                    f"written; use `with session.begin():`"
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
        """Those that are not inserted yet."""
        return [entry.row for entry in self._pending]

    def _cannot_wait(self, session: Session) -> bool:
        """During a commit or a flush, the last event may have passed. A session that joined the transaction of a
        connection does not see its end at all, unless it has made a savepoint of its own there."""
        if self._closing or session._flushing:  # noqa: SLF001 - the flush of a commit comes after its last listener
            return True
        outbox = self._outbox()
        bind = None if outbox is None else session.get_bind(**bind_arguments_for(session, outbox.table))
        if not isinstance(bind, Connection):
            return False
        if session.join_transaction_mode != "create_savepoint" and may_block(bind):
            return True
        if bind not in self._watched:
            self._watched.add(bind)
            event.listen(bind, "commit", self._connection_commits)
        return False

    def _connection_commits(self, _: Connection) -> None:
        """Without its session, and with all that the session has flushed."""
        session = self._session()
        if session is not None:
            self._insert(innermost(session))

    def _insert(self, transaction: SessionTransaction | None, more: Sequence[NewRow] = ()) -> None:
        """All that wait, then `more`, in the order of the pushes."""
        rows, outbox = [*self.rows, *more], self._outbox()
        if not rows or outbox is None or transaction is None:
            return
        where = bind_arguments_for(transaction.session, outbox.table)
        connection = transaction.connection(None, **where)
        outbox.insert(connection, rows)
        self._pending.clear()
        self._wrote = True
        if isinstance(transaction.session.get_bind(**where), Connection):
            outbox.ring_after(connection)

    def _began(self, _: Session, begun: SessionTransaction) -> None:
        """A savepoint: what was pushed before it belongs to the transaction around it."""
        if begun.nested:
            self._insert(begun.parent)

    def _commit(self, session: Session) -> None:
        at = innermost(session)
        self._closing.add(at)
        self._insert(at)

    def _committed(self, session: Session) -> None:
        if session.in_nested_transaction():
            return
        outbox = self._outbox()
        if self._wrote and outbox is not None:
            outbox.ring()
        self._dropped.clear()

    def _rolled_back(self, session: Session) -> None:
        """Somebody asked for it, so there is no need for a warning."""
        at = innermost(session)
        self._dropped.clear()
        self._pending = [entry for entry in self._pending if at is not None and entry.owner is not at]

    def _ended(self, _: Session, ended: SessionTransaction) -> None:
        self._closing.discard(ended)
        self._dropped += [entry.row for entry in self._pending if entry.owner is ended]
        self._pending = [entry for entry in self._pending if entry.owner is not ended]
        if ended.parent is None:
            self._warn_of_dropped()
            self._wrote = False
            self._dropped.clear()
            self._pending.clear()

    def _warn_of_dropped(self) -> None:
        """Nobody asked for a rollback, and the caller holds receipts. An exception that closes the session did ask."""
        rows = self._dropped
        if not rows or sys.exc_info()[0] is not None:
            return
        named = ", ".join(f"{row.name} {row.task_id}" for row in rows[:NAMED])
        log.warning(
            "a session was closed without a commit after the last push, so %d of its tasks will not be sent: %s%s; "
            "commit after the last push, or call session.rollback() if that is meant",
            len(rows),
            named,
            ", …" if len(rows) > NAMED else "",
        )


def innermost(session: Session) -> SessionTransaction | None:
    return session.get_nested_transaction() or session.get_transaction()


def may_block(connection: Connection) -> bool:
    """Whether a statement may run here and now. An async driver's must be awaited, by a greenlet of SQLAlchemy's."""
    return not connection.dialect.is_async or in_greenlet()
