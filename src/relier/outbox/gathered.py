"""Rows that wait in a SQLAlchemy session for the end of its transaction."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import ref

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from relier.errors import OutsideTransactionError
from relier.outbox.row import NewRow

if TYPE_CHECKING:
    from relier.outbox.sqlalchemy import Outbox

log = logging.getLogger("relier.outbox")

NAMED = 10  # so many of the tasks that are dropped are named


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
        # Commits under way, a listener's savepoints among them: what is added now has no other to wait for.
        self._closing: set[SessionTransaction | None] = set()
        self._session = ref(session)
        event.listen(session, "before_commit", self._commit)
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_rollback", self._all_rolled_back)
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
        self._closing.add(innermost(session))
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

    def _all_rolled_back(self, session: Session) -> None:
        if not session.in_nested_transaction():  # told before the transaction ends: what is left then was not asked for
            self._entries.clear()

    def _rolled_back(self, _: Session, ended: SessionTransaction) -> None:
        self._entries = [entry for entry in self._entries if not _is_within(entry.owner, ended)]
        for entry in self._entries:
            if entry.inserted_in is not None and _is_within(entry.inserted_in, ended):
                entry.inserted_in = None

    def _ended(self, _: Session, ended: SessionTransaction) -> None:
        self._closing.discard(ended)
        if ended.parent is None:  # perhaps by `session.close()`, which is no rollback for SQLAlchemy's listeners
            self._tell_of_dropped()
            self._entries.clear()

    def _tell_of_dropped(self) -> None:
        """Nobody asked for a rollback, and the caller holds receipts. An exception that closes the session did ask."""
        if not self._entries or sys.exc_info()[0] is not None:
            return
        rows = [entry.row for entry in self._entries]
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


def _is_within(transaction: SessionTransaction, outer: SessionTransaction) -> bool:
    at: SessionTransaction | None = transaction
    while at is not None and at is not outer:
        at = at.parent
    return at is outer
