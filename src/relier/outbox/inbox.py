"""The inbox: a task's effects in the user's database, and the mark that it ran, commit together.

    async with ctx.exactly_once(session) as mark:
        session.add(Payment(order=order_id))
        mark.result = {"paid": True}

The mark is written first: another attempt, a zombie or a replay waits for this transaction and then finds it, and its
task ends there with the stored result, without running the rest. An edited replay is another revision, and runs. This
is what makes an effect exactly once; the mark outlives the ledger's record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol

from relier.errors import ConfigurationError
from relier.outbox.rows import NOW_MS, Transaction

DEFAULT_INBOX = "relier_inbox"


class AlreadyRan(BaseException):
    """An earlier attempt has committed. Ends the task with `value`, what that one returned. No Exception, so that an
    `except Exception` around the block does not take it for a failure."""

    def __init__(self, value: Any) -> None:
        super().__init__("an earlier attempt of this task has committed; its result is returned")
        self.value = value


class Book(Protocol):
    """A transaction of the user's, or one begun for the mark: then it ends with it."""

    dialect: str

    def begin(self) -> None: ...

    def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[Any]: ...

    def change(self, sql: str, values: Mapping[str, Any]) -> int: ...

    def end(self, *, well: bool) -> None: ...


class Marks:
    """The statements on the table."""

    def __init__(self, dialect: str, table: str) -> None:
        self._table = table
        self._now = NOW_MS[dialect]
        self._mysql = dialect == "mysql"
        self._locks = dialect != "sqlite"

    def put(self, book: Book, task_id: str, revision: int) -> bool:
        """False: it is there already, committed by another attempt. Waits for one that is at it."""
        ignore, nothing = ("IGNORE ", "") if self._mysql else ("", " ON CONFLICT DO NOTHING")
        sql = (
            f"INSERT {ignore}INTO {self._table} (task_id, revision, created_at) "
            f"VALUES (:task_id, :revision, {self._now}){nothing}"
        )
        return book.change(sql, {"task_id": task_id, "revision": revision}) == 1

    def result(self, book: Book, task_id: str, revision: int) -> bytes | None:
        lock = " FOR UPDATE" if self._locks else ""  # sees what was committed since this transaction began
        sql = f"SELECT result FROM {self._table} WHERE task_id = :task_id AND revision = :revision{lock}"
        found = book.run(sql, {"task_id": task_id, "revision": revision})
        return None if not found or found[0][0] is None else bytes(found[0][0])

    def keep(self, book: Book, task_id: str, revision: int, result: bytes) -> None:
        sql = f"UPDATE {self._table} SET result = :result WHERE task_id = :task_id AND revision = :revision"
        book.change(sql, {"task_id": task_id, "revision": revision, "result": result})

    def count(self, tx: Transaction, older_than_ms: int) -> int:
        """How many `purge` would remove."""
        sql = f"SELECT count(*) FROM {self._table} WHERE created_at <= {self._now} - :older"
        return int(tx.run(sql, {"older": older_than_ms})[0][0])

    def purge(self, tx: Transaction, older_than_ms: int) -> int:
        """Marks of tasks that cannot come back any more go."""
        return tx.change(
            f"DELETE FROM {self._table} WHERE created_at <= {self._now} - :older", {"older": older_than_ms}
        )


class ExactlyOnce:
    """`with` for a Session, a Connection or a Django database; `async with` for SQLAlchemy's async ones.

    A transaction that `where` has begun already is the caller's to commit; otherwise the block is one, committed at its
    end and rolled back where it raises. `result`: what later attempts return.
    """

    def __init__(
        self,
        where: Any,
        task_id: str,
        revision: int,
        encode: Callable[[Any], bytes | None],
        decode: Callable[[bytes | None], Any],
        table: str = DEFAULT_INBOX,
    ) -> None:
        self.result: Any = None
        self._where = where
        self._key = task_id, revision
        self._encode = encode
        self._decode = decode
        self._table = table
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
        marks = Marks(book.dialect, self._table)
        book.begin()
        try:
            fresh = marks.put(book, *self._key)
            earlier = None if fresh else self._decode(marks.result(book, *self._key))
        except BaseException:
            book.end(well=False)
            raise
        if not fresh:
            book.end(well=False)
            raise AlreadyRan(earlier)
        self._book = book

    def _exit(self, error: BaseException | None) -> None:
        book, self._book = self._book, None
        if book is None:
            return
        try:
            if error is None and self.result is not None:
                self._keep(book)
        except BaseException:
            book.end(well=False)
            raise
        book.end(well=error is None)

    def _keep(self, book: Book) -> None:
        raw = self._encode(self.result)
        if raw is not None:
            Marks(book.dialect, self._table).keep(book, *self._key, raw)


def book_of(where: Any) -> Book:
    """The transaction of a session, a connection, or a Django database."""
    home = "relier.django.inbox" if where is None or isinstance(where, str) else "relier.outbox.sqlalchemy"
    book: Book = import_module(home).book_of(where)
    return book
