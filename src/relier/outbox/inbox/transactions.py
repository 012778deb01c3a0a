"""The transaction that a mark is written in: of SQLAlchemy or Django, begun by the caller or by the block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from relier.outbox.table.statements import Transaction

ENDED_INSIDE = (
    "the transaction of ctx.exactly_once ended inside the block, so the mark and the effects did not commit together; "
    "check what this task did; do not commit or roll back inside the block, and do not catch database errors in it"
)


class TransactionState(Enum):
    """The state of the transaction that a mark was written in."""

    OPEN = "open"
    COMMITTED = "committed"
    LOST = "rolled back"


class InboxTransaction(Protocol):
    """A transaction that begins and ends with the block; or, unless `owns`, a savepoint in the caller's transaction."""

    dialect: str
    owns: bool

    @property
    def state(self) -> TransactionState: ...

    def begin(self) -> None:
        """Begin. Refuse a connection whose statements commit on their own."""

    def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[Any]: ...

    def change(self, sql: str, values: Mapping[str, Any]) -> int: ...

    def check(self) -> None:
        """Raise if the transaction or the savepoint has ended inside the block."""

    def end(self, *, well: bool) -> None:
        """Commit if `well`, otherwise roll back."""

    def ask_at_commit(self, is_there: Callable[[Transaction], bool]) -> None:
        """Check at the commit whether the mark is still part of the transaction.

        An error may have ended the transaction although the caller, or a listener of the commit, caught it. The commit
        of the remaining statements then succeeds without the mark.
        """

    def close(self) -> None:
        """Stop watching the transaction."""
