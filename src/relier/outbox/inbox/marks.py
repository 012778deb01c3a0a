"""Every statement on the inbox table."""

from __future__ import annotations

import hashlib
import re

from relier.errors import ExactlyOnceError
from relier.outbox.inbox.transactions import ENDED_INSIDE, InboxTransaction
from relier.outbox.table.contention import is_aborted, is_unknown_savepoint
from relier.outbox.table.names import quoted
from relier.outbox.table.statements import NOW_MS, Transaction

DEFAULT_INBOX = "relier_inbox"
PIN = "relier_mark"
PLAIN = re.compile("[0-9a-f-]{1,63}")


class Marks:
    """The statements on the inbox table."""

    def __init__(self, dialect: str, table: str) -> None:
        self._table = quoted(dialect, table)
        self._now = NOW_MS[dialect]
        self._mysql = dialect == "mysql"
        self._locks = dialect != "sqlite"
        # MySQL rolls back a whole transaction at a deadlock, and commits it at DDL. SQLite rolls it back at some
        # errors. On both, the next statement begins another transaction. PostgreSQL accepts no statement after an
        # error, and turns a commit into a rollback. On PostgreSQL a mark names the transaction that wrote it.
        self._pins = dialect != "postgresql"

    def put(self, transaction: InboxTransaction, task_id: str, revision: int) -> bool:
        """Write the mark. Return False if another attempt has committed it. Wait for an attempt that is writing it."""
        # MySQL counts an existing row as two. Unlike IGNORE, this hides no error. It also takes an exclusive lock at
        # once; two waiting transactions that had to upgrade a shared lock would deadlock.
        nothing = "DUPLICATE KEY UPDATE created_at = created_at + 1" if self._mysql else "CONFLICT DO NOTHING"
        sql = (
            f"INSERT INTO {self._table} (task_id, revision, created_at) "
            f"VALUES (:task_id, :revision, {self._now}) ON {nothing}"
        )
        return transaction.change(sql, {"task_id": mark_of(task_id), "revision": revision}) == 1

    def pin(self, transaction: InboxTransaction) -> None:
        """Create a savepoint, which lives as long as its transaction. A block that is itself a savepoint needs none."""
        if self._pins and transaction.owns:
            transaction.change(f"SAVEPOINT {PIN}", {})

    def unpin(self, transaction: InboxTransaction, task_id: str, revision: int) -> None:
        """Raise if the mark is not in the transaction that is about to commit, or if that transaction cannot commit."""
        if not transaction.owns:
            return
        try:
            is_ours = (
                self._release(transaction)
                if self._pins
                else self._is_of_this_transaction(transaction, task_id, revision)
            )
        except Exception as error:
            if not is_aborted(error):
                raise
            raise ExactlyOnceError(ENDED_INSIDE) from error
        if not is_ours:
            raise ExactlyOnceError(ENDED_INSIDE, final=self.is_there(transaction, task_id, revision))

    def _release(self, transaction: InboxTransaction) -> bool:
        try:
            transaction.change(f"RELEASE SAVEPOINT {PIN}", {})
        except Exception as error:
            if not is_unknown_savepoint(error):
                raise
            return False
        return True

    def _is_of_this_transaction(self, transaction: InboxTransaction, task_id: str, revision: int) -> bool:
        written = "CAST(xmin AS text) = CAST(mod(txid_current(), 4294967296) AS text)"
        sql = f"SELECT 1 FROM {self._table} WHERE task_id = :task_id AND revision = :revision AND {written}"
        return bool(transaction.run(sql, {"task_id": mark_of(task_id), "revision": revision}))

    def is_there(self, tx: Transaction, task_id: str, revision: int) -> bool:
        sql = f"SELECT 1 FROM {self._table} WHERE task_id = :task_id AND revision = :revision"
        return bool(tx.run(sql, {"task_id": mark_of(task_id), "revision": revision}))

    def result(self, transaction: InboxTransaction, task_id: str, revision: int) -> bytes | None:
        lock = " FOR UPDATE" if self._locks else ""  # also sees what was committed after this transaction began
        sql = f"SELECT result FROM {self._table} WHERE task_id = :task_id AND revision = :revision{lock}"
        found = transaction.run(sql, {"task_id": mark_of(task_id), "revision": revision})
        return None if not found or found[0][0] is None else bytes(found[0][0])

    def earlier(self, transaction: InboxTransaction, task_id: str, revision: int) -> list[bytes | None]:
        """Return the result of a mark from a release that did not hash ids, if there is one."""
        if mark_of(task_id) == task_id:
            return []
        sql = f"SELECT task_id, result FROM {self._table} WHERE task_id = :task_id AND revision = :revision"
        found = transaction.run(sql, {"task_id": task_id, "revision": revision})
        return [None if raw is None else bytes(raw) for named, raw in found if named == task_id]

    def keep(self, transaction: InboxTransaction, task_id: str, revision: int, result: bytes) -> None:
        sql = f"UPDATE {self._table} SET result = :result WHERE task_id = :task_id AND revision = :revision"
        transaction.change(sql, {"task_id": mark_of(task_id), "revision": revision, "result": result})

    def count(self, tx: Transaction, older_than_ms: int) -> int:
        """Return how many marks `purge` would delete."""
        sql = f"SELECT count(*) FROM {self._table} WHERE created_at <= {self._now} - :older"
        return int(tx.run(sql, {"older": older_than_ms})[0][0])

    def purge(self, tx: Transaction, older_than_ms: int) -> int:
        """Delete the marks of tasks that can no longer run again."""
        return tx.change(
            f"DELETE FROM {self._table} WHERE created_at <= {self._now} - :older", {"older": older_than_ms}
        )


def mark_of(task_id: str) -> str:
    """Return a task's id as its mark stores it. An id that a column might truncate, or confuse with another id, is
    hashed. Ids from Relier and Celery are short, lower-case and hexadecimal, and are stored as they are."""
    return task_id if PLAIN.fullmatch(task_id) else hashlib.sha256(task_id.encode()).hexdigest()
