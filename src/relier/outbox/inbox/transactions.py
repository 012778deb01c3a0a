"""The transaction that a mark is written in: of SQLAlchemy or Django, begun by the caller or by the block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from relier.outbox.table.statements import Transaction

ENDED_INSIDE = (
    "the transaction of ctx.exactly_once ended inside the block, so the mark and the effects did not commit together; "
    "look at what this task did; do not commit or roll back inside the block, and let errors of the database leave it"
)


class TransactionState(Enum):
    """What has become of the transaction that a mark is in."""

    OPEN = "open"
    COMMITTED = "committed"
    LOST = "rolled back"


class InboxTransaction(Protocol):
    """A transaction begun for the mark, which ends with the block; or a savepoint in one of the user's."""

    dialect: str
    owns: bool

    @property
    def state(self) -> TransactionState: ...

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
        """Nobody asks for its state any more."""
