"""The inbox: a task's effects in the user's database, and the mark that the task ran, commit together.

    async with ctx.exactly_once(session) as mark:
        session.add(Payment(order=order_id))
        mark.result = {"paid": True}

The mark is written first. Another attempt (a retry, a zombie or a replay) waits for this transaction and then finds the
mark. That attempt ends with the stored result, without running the block. So the effect happens exactly once. A replay
with an edited payload counts as another revision, and runs. The mark outlives the ledger's record.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib import import_module
from types import TracebackType
from typing import Any

from relier.errors import ConfigurationError, ExactlyOnceError, IdempotencyInFlightError
from relier.outbox.inbox.marks import DEFAULT_INBOX, Marks
from relier.outbox.inbox.transactions import ENDED_INSIDE, InboxTransaction, TransactionState
from relier.outbox.table.contention import Contention, contention_in
from relier.outbox.table.statements import said_by

MARK_ATTEMPTS = 5  # when transactions conflict; then the task is put back in its queue

SECOND_BLOCK = (
    "this task entered a second ctx.exactly_once block, but a later attempt that finds the mark of the first block "
    "would skip the second; the second block did not run; put all effects into one block, or push another task for the "
    "rest with task.push_in inside the block"
)
NOT_COMMITTED = (
    "the task returned, but the transaction of its ctx.exactly_once block is {state}: neither the effects nor the mark "
    "was committed, unless only the answer to the commit was lost: then the next attempt finds the mark; the session "
    "or connection had begun a transaction before the block, perhaps with a read, so the caller must commit it; commit "
    "after the block, or start the transaction with the block"
)


class AlreadyRan(BaseException):
    """Ends the task with `value`, the result of an earlier attempt that has committed.

    This is not an Exception, so that an `except Exception` around the block does not treat it as a failure.
    """

    def __init__(self, value: Any) -> None:
        super().__init__("an earlier attempt of this task has committed; its result is returned")
        self.value = value


def earlier_result(error: BaseException) -> AlreadyRan | None:
    """Return the `AlreadyRan` that ends the task, also if a TaskGroup wrapped it. Return None if another error was
    raised, alone or in the same group."""
    if isinstance(error, BaseExceptionGroup):
        found = [earlier_result(one) for one in error.exceptions]
        return found[0] if all(found) else None
    return error if isinstance(error, AlreadyRan) else None


class Blocks:
    """The blocks of one attempt that are open or ended without an error.

    One of them must commit, or the task would be done without its effect. A second block is refused: it would find the
    mark of the first and be skipped, at once if it runs inside or concurrently with the first block, otherwise by the
    next attempt.
    """

    def __init__(self) -> None:
        self._transactions: list[InboxTransaction] = []
        self._open: set[ExactlyOnce] = set()
        self._refused: ExactlyOnceError | None = None

    def enter(self, block: ExactlyOnce) -> None:
        """Register a block, or refuse it if it is the second."""
        ended_well = any(transaction.state is not TransactionState.LOST for transaction in self._transactions)
        if self._open or ended_well:
            self._refused = ExactlyOnceError(SECOND_BLOCK, final=True)
            raise self._refused
        self._open.add(block)

    def leave(self, block: ExactlyOnce) -> None:
        """Unregister a block that has ended, or that could not be entered."""
        self._open.discard(block)

    def add(self, transaction: InboxTransaction) -> None:
        self._transactions.append(transaction)

    def broken(self) -> ExactlyOnceError | None:
        """Return the error of an attempt that ended normally but did not commit its block. The engine calls this."""
        states = {transaction.state for transaction in self._transactions}
        for transaction in self._transactions:
            transaction.close()
        if self._refused is not None or not states or TransactionState.COMMITTED in states:
            return self._refused
        return ExactlyOnceError(
            NOT_COMMITTED.format(state="open" if TransactionState.OPEN in states else "rolled back")
        )


class ExactlyOnce:
    """A block: `with` for a Session, a Connection or a Django database; `async with` for SQLAlchemy's async classes.

    If `where` has already begun a transaction, the block is a savepoint in it, and the caller commits. Otherwise the
    block is a transaction that commits at its end. Both roll back if the block raises. `result`: the result with which
    later attempts end. `blocks`: all blocks of the same attempt.
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
        self._transaction: InboxTransaction | None = None

    def __enter__(self) -> ExactlyOnce:
        self._enter(transaction_handle_of(self._where))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit(error)

    async def __aenter__(self) -> ExactlyOnce:
        await self._asynchronously(lambda inner: self._enter(transaction_handle_of(inner)))
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
                f"for a blocking session or connection, and for Django, write a `def` task with a plain `with`"
            )
        await run_sync(act)

    def _enter(self, transaction: InboxTransaction) -> None:
        self._blocks.enter(self)
        try:
            self._begin(transaction)
        except BaseException:
            self._blocks.leave(self)
            raise

    def _begin(self, transaction: InboxTransaction) -> None:
        for attempt in itertools.count(1):
            transaction.begin()
            try:
                self._mark(transaction)
            except BaseException as error:
                transaction.end(well=False)
                clash = contention_in(error)
                if clash is None:
                    raise
                if clash is Contention.WAITED or not transaction.owns or attempt >= MARK_ATTEMPTS:
                    raise self._busy(error) from error
            else:
                self._transaction = transaction
                return

    def _mark(self, transaction: InboxTransaction) -> None:
        marks = Marks(transaction.dialect, self._table)
        earlier = marks.earlier(transaction, *self._key)
        if not earlier and not marks.put(transaction, *self._key):
            earlier = [marks.result(transaction, *self._key)]
        if earlier:
            raise AlreadyRan(self._decode(earlier[0]))
        marks.pin(transaction)

    def _exit(self, error: BaseException | None) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        try:
            self._end(transaction, error)
        finally:
            self._blocks.leave(self)

    def _end(self, transaction: InboxTransaction, error: BaseException | None) -> None:
        if error is not None:
            transaction.end(well=False)
            return
        try:
            self._finish(transaction)
        except Exception as failure:
            if contention_in(failure) is None or not transaction.owns:
                raise
            raise self._busy(failure) from failure  # the whole block is rolled back
        self._blocks.add(transaction)

    def _finish(self, transaction: InboxTransaction) -> None:
        marks = Marks(transaction.dialect, self._table)
        try:
            transaction.check()
            marks.unpin(transaction, *self._key)
            raw = None if self.result is None else self._encode(self.result)
            if raw is not None:
                marks.keep(transaction, *self._key, raw)
            transaction.ask_at_commit(lambda tx: marks.is_there(tx, *self._key))
        except BaseException:
            transaction.end(well=False)
            raise
        transaction.end(well=True)
        if transaction.owns and transaction.state is TransactionState.LOST:
            raise ExactlyOnceError(ENDED_INSIDE)

    def _busy(self, error: BaseException) -> IdempotencyInFlightError:
        return IdempotencyInFlightError(
            f"another transaction conflicts with the mark of {self._key[0]} in {self._table}: {said_by(error)}; "
            f"nothing was written; the task is put back in its queue",
            self._key[0],
        )


def transaction_handle_of(where: Any) -> InboxTransaction:
    """Return the handle for the transaction of a session, a connection, or a Django database."""
    home = (
        "relier.django.inbox"
        if where is None or isinstance(where, str)
        else "relier.outbox.sqlalchemy.transaction_handle"
    )
    transaction: InboxTransaction = import_module(home).transaction_handle_of(where)
    return transaction
