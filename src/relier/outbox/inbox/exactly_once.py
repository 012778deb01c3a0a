"""The inbox: a task's effects in the user's database, and the mark that it ran, commit together.

    async with ctx.exactly_once(session) as mark:
        session.add(Payment(order=order_id))
        mark.result = {"paid": True}

The mark is written first: another attempt, a zombie or a replay waits for this transaction and then finds it, and its
task ends there with the stored result, without running the rest. An edited replay is another revision, and runs. This
is what makes an effect exactly once; the mark outlives the ledger's record.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol

from relier.errors import ConfigurationError, ExactlyOnceError, IdempotencyInFlightError
from relier.outbox.table.contention import Contention, contention_in, is_aborted, is_unknown_savepoint
from relier.outbox.table.names import quoted
from relier.outbox.table.statements import NOW_MS, Transaction, said_by

DEFAULT_INBOX = "relier_inbox"
MARK_ATTEMPTS = 5  # where transactions clash; then the task is put back
PIN = "relier_mark"
PLAIN = re.compile("[0-9a-f-]{1,63}")

ENDED_INSIDE = (
    "the transaction of ctx.exactly_once ended inside the block, so the mark and the effects did not commit together; "
    "look at what this task did; do not commit or roll back inside the block, and let errors of the database leave it"
)
SECOND_BLOCK = (
    "this task entered a second ctx.exactly_once block, and an attempt that finds the mark of the first one would skip "
    "the second; the second block did not run; put all effects into one block, or push a task of its own for the "
    "others, with task.push_in inside the block"
)
NOT_COMMITTED = (
    "the task returned, but the transaction of its ctx.exactly_once block is {fate}: neither the effects nor the mark "
    "were committed; the session or connection had begun a transaction before the block, perhaps by a read, so it is "
    "yours to commit: commit it after the block, or begin with the block"
)


class AlreadyRan(BaseException):
    """An earlier attempt has committed. Ends the task with `value`, what that one returned. No Exception, so that an
    `except Exception` around the block does not take it for a failure."""

    def __init__(self, value: Any) -> None:
        super().__init__("an earlier attempt of this task has committed; its result is returned")
        self.value = value


class Fate(Enum):
    """What has become of the transaction that a mark is in."""

    OPEN = "open"
    COMMITTED = "committed"
    LOST = "rolled back"


class Book(Protocol):
    """A transaction begun for the mark, which ends with the block; or a savepoint in one of the user's."""

    dialect: str
    owns: bool

    @property
    def fate(self) -> Fate: ...

    def begin(self) -> None:
        """Refuses what would commit by itself."""

    def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[Any]: ...

    def change(self, sql: str, values: Mapping[str, Any]) -> int: ...

    def check(self) -> None:
        """Raises where the transaction or the savepoint has ended inside the block."""

    def end(self, *, well: bool) -> None:
        """Rolls back where it cannot end well."""

    def ask_at_commit(self, is_there: Callable[[Transaction], bool]) -> None:
        """The caller commits: whether the mark is still part of it is asked then. An error that the caller has caught
        since may have ended the transaction, and a commit of what is left succeeds."""

    def close(self) -> None:
        """Nobody asks for its fate any more."""


class Blocks:
    """The blocks of one attempt that ended well. One of them has to be committed, or the task is done without its
    effect; and a second one would be skipped for the mark of the first when the task is tried again."""

    def __init__(self) -> None:
        self._books: list[Book] = []
        self._refused: ExactlyOnceError | None = None

    def check(self) -> None:
        if any(book.fate is not Fate.LOST for book in self._books):
            self._refused = ExactlyOnceError(SECOND_BLOCK, final=True)
            raise self._refused

    def add(self, book: Book) -> None:
        self._books.append(book)

    def broken(self) -> ExactlyOnceError | None:
        """Called by the engine when the attempt has ended without an error."""
        fates = {book.fate for book in self._books}
        for book in self._books:
            book.close()
        if self._refused is not None or not fates or Fate.COMMITTED in fates:
            return self._refused
        return ExactlyOnceError(NOT_COMMITTED.format(fate="open" if Fate.OPEN in fates else "rolled back"))


class Marks:
    """The statements on the table."""

    def __init__(self, dialect: str, table: str) -> None:
        self._table = quoted(dialect, table)
        self._now = NOW_MS[dialect]
        self._mysql = dialect == "mysql"
        self._locks = dialect != "sqlite"
        # MySQL undoes a whole transaction for a deadlock and commits it for DDL, SQLite undoes it for some errors; and
        # the next statement begins another one. PostgreSQL takes no statement after any error, and rolls back where it
        # is told to commit; a mark there names the transaction that wrote it.
        self._pins = dialect != "postgresql"

    def put(self, book: Book, task_id: str, revision: int) -> bool:
        """False: it is there already, committed by another attempt. Waits for one that is at it."""
        # MySQL: counts a row that was there as two. Unlike IGNORE it hides no error, and takes the lock that two who
        # wait need, not one that each would have to exchange for it: that is a deadlock.
        nothing = "DUPLICATE KEY UPDATE created_at = created_at + 1" if self._mysql else "CONFLICT DO NOTHING"
        sql = (
            f"INSERT INTO {self._table} (task_id, revision, created_at) "
            f"VALUES (:task_id, :revision, {self._now}) ON {nothing}"
        )
        return book.change(sql, {"task_id": mark_of(task_id), "revision": revision}) == 1

    def pin(self, book: Book) -> None:
        """A savepoint lives as long as its transaction. Where the block is a savepoint itself, that one serves."""
        if self._pins and book.owns:
            book.change(f"SAVEPOINT {PIN}", {})

    def unpin(self, book: Book, task_id: str, revision: int) -> None:
        """Raises where the transaction that the mark was written in is not the one that is about to be committed, or
        will not be."""
        if not book.owns:
            return
        try:
            is_ours = self._release(book) if self._pins else self._is_of_this_transaction(book, task_id, revision)
        except Exception as error:
            if not is_aborted(error):
                raise
            raise ExactlyOnceError(ENDED_INSIDE) from error
        if not is_ours:
            raise ExactlyOnceError(ENDED_INSIDE, final=self.is_there(book, task_id, revision))

    def _release(self, book: Book) -> bool:
        try:
            book.change(f"RELEASE SAVEPOINT {PIN}", {})
        except Exception as error:
            if not is_unknown_savepoint(error):
                raise
            return False
        return True

    def _is_of_this_transaction(self, book: Book, task_id: str, revision: int) -> bool:
        written = "CAST(xmin AS text) = CAST(mod(txid_current(), 4294967296) AS text)"
        sql = f"SELECT 1 FROM {self._table} WHERE task_id = :task_id AND revision = :revision AND {written}"
        return bool(book.run(sql, {"task_id": mark_of(task_id), "revision": revision}))

    def is_there(self, tx: Transaction, task_id: str, revision: int) -> bool:
        sql = f"SELECT 1 FROM {self._table} WHERE task_id = :task_id AND revision = :revision"
        return bool(tx.run(sql, {"task_id": mark_of(task_id), "revision": revision}))

    def result(self, book: Book, task_id: str, revision: int) -> bytes | None:
        lock = " FOR UPDATE" if self._locks else ""  # sees what was committed since this transaction began
        sql = f"SELECT result FROM {self._table} WHERE task_id = :task_id AND revision = :revision{lock}"
        found = book.run(sql, {"task_id": mark_of(task_id), "revision": revision})
        return None if not found or found[0][0] is None else bytes(found[0][0])

    def earlier(self, book: Book, task_id: str, revision: int) -> list[bytes | None]:
        """The result of a mark that was written before ids were hashed, if there is one."""
        if mark_of(task_id) == task_id:
            return []
        sql = f"SELECT task_id, result FROM {self._table} WHERE task_id = :task_id AND revision = :revision"
        found = book.run(sql, {"task_id": task_id, "revision": revision})
        return [None if raw is None else bytes(raw) for named, raw in found if named == task_id]

    def keep(self, book: Book, task_id: str, revision: int, result: bytes) -> None:
        sql = f"UPDATE {self._table} SET result = :result WHERE task_id = :task_id AND revision = :revision"
        book.change(sql, {"task_id": mark_of(task_id), "revision": revision, "result": result})

    def count(self, tx: Transaction, older_than_ms: int) -> int:
        """How many `purge` would remove."""
        sql = f"SELECT count(*) FROM {self._table} WHERE created_at <= {self._now} - :older"
        return int(tx.run(sql, {"older": older_than_ms})[0][0])

    def purge(self, tx: Transaction, older_than_ms: int) -> int:
        """Marks of tasks that cannot come back any more go."""
        return tx.change(
            f"DELETE FROM {self._table} WHERE created_at <= {self._now} - :older", {"older": older_than_ms}
        )


def mark_of(task_id: str) -> str:
    """A task's id as its mark has it: the hash of any that a column might shorten, or take for another one. Those that
    Relier and Celery make are short, lower-case and hexadecimal, and stay as they are."""
    return task_id if PLAIN.fullmatch(task_id) else hashlib.sha256(task_id.encode()).hexdigest()


class ExactlyOnce:
    """`with` for a Session, a Connection or a Django database; `async with` for SQLAlchemy's async ones.

    A transaction that `where` has begun already is the caller's to commit, and the block is a savepoint in it.
    Otherwise the block is a transaction, committed at its end. Both are rolled back where the block raises. `result`:
    what later attempts return. `blocks`: those of the same attempt.
    """

    def __init__(
        self,
        where: Any,
        task_id: str,
        revision: int,
        encode: Callable[[Any], bytes | None],
        decode: Callable[[bytes | None], Any],
        table: str = DEFAULT_INBOX,
        blocks: Blocks | None = None,
    ) -> None:
        self.result: Any = None
        self._where = where
        self._key = task_id, revision
        self._encode = encode
        self._decode = decode
        self._table = table
        self._blocks = blocks or Blocks()
        self._book: Book | None = None

    def __enter__(self) -> ExactlyOnce:
        self._enter(book_of(self._where))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit(error)

    async def __aenter__(self) -> ExactlyOnce:
        await self._asynchronously(lambda inner: self._enter(book_of(inner)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._asynchronously(lambda _: self._exit(error))

    async def _asynchronously(self, act: Callable[[Any], None]) -> None:
        run_sync = getattr(self._where, "run_sync", None)
        if run_sync is None:
            raise ConfigurationError(
                f"`async with ctx.exactly_once(…)` takes an AsyncSession or AsyncConnection, not {self._where!r:.60}; "
                f"for a blocking one, and for Django, make it a `def` task with a plain `with`"
            )
        await run_sync(act)

    def _enter(self, book: Book) -> None:
        self._blocks.check()
        for attempt in itertools.count(1):
            book.begin()
            try:
                self._mark(book)
            except BaseException as error:
                book.end(well=False)
                clash = contention_in(error)
                if clash is None:
                    raise
                if clash is Contention.WAITED or not book.owns or attempt >= MARK_ATTEMPTS:
                    raise self._busy(error) from error
            else:
                self._book = book
                return

    def _mark(self, book: Book) -> None:
        marks = Marks(book.dialect, self._table)
        earlier = marks.earlier(book, *self._key)
        if not earlier and not marks.put(book, *self._key):
            earlier = [marks.result(book, *self._key)]
        if earlier:
            raise AlreadyRan(self._decode(earlier[0]))
        marks.pin(book)

    def _exit(self, error: BaseException | None) -> None:
        book, self._book = self._book, None
        if book is None:
            return
        if error is not None:
            book.end(well=False)
            return
        try:
            self._finish(book)
        except Exception as failure:
            if contention_in(failure) is None or not book.owns:
                raise
            raise self._busy(failure) from failure  # all of it is undone
        self._blocks.add(book)

    def _finish(self, book: Book) -> None:
        marks = Marks(book.dialect, self._table)
        try:
            book.check()
            marks.unpin(book, *self._key)
            raw = None if self.result is None else self._encode(self.result)
            if raw is not None:
                marks.keep(book, *self._key, raw)
            if not book.owns:
                book.ask_at_commit(lambda tx: marks.is_there(tx, *self._key))
        except BaseException:
            book.end(well=False)
            raise
        book.end(well=True)

    def _busy(self, error: BaseException) -> IdempotencyInFlightError:
        return IdempotencyInFlightError(
            f"another transaction got in the way of the mark of {self._key[0]} in {self._table}: {said_by(error)}; "
            f"nothing was written; the task is put back",
            self._key[0],
        )


def book_of(where: Any) -> Book:
    """The transaction of a session, a connection, or a Django database."""
    home = (
        "relier.django.inbox"
        if where is None or isinstance(where, str)
        else "relier.outbox.sqlalchemy.transaction_handle"
    )
    book: Book = import_module(home).book_of(where)
    return book
