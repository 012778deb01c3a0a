"""What of a batch is published in one go, and when: rows of one order key one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from relier.outbox.row import Row


class PublishChunks:
    """Cuts a batch into chunks: rows of one kind, those of a key together, so few that each of `threads` has some.

    `size`: how many rows of a kind its target publishes best in one go. Once a row was not sent, those of its key that
    come after it are `held`: they stay where they are until the next claim.
    """

    def __init__(self, rows: Sequence[Row], threads: int, size: Callable[[str], int]) -> None:
        self._left = deque(_cut(_by_key(rows), -(-len(rows) // threads), size))
        self._held: set[str] = set()

    def next(self, under_way: Iterable[Sequence[Row]] = ()) -> Sequence[Row]:
        """The next chunk that shares no key with those under way, nor with one before it; empty: none may go now."""
        busy = {row.order_key for chunk in under_way for row in chunk}
        busy.discard("")
        for i, chunk in enumerate(self._left):
            keys = {row.order_key for row in chunk}
            if busy.isdisjoint(keys):
                del self._left[i]
                going = [row for row in chunk if row.order_key not in self._held] if self._held else chunk
                return going or self.next(under_way)
            busy |= keys - {""}
        return ()

    def hold(self, row: Row) -> None:
        """It was not sent: nothing of its key goes now."""
        if row.order_key:
            self._held.add(row.order_key)


def _by_key(rows: Sequence[Row]) -> Sequence[Row]:
    """Rows of one key side by side, in their order; the others where they are."""
    first: dict[str, int] = {}
    return sorted(rows, key=lambda row: (first.setdefault(row.order_key, row.id) if row.order_key else row.id, row.id))


def _cut(rows: Sequence[Row], share: int, size: Callable[[str], int]) -> Iterable[Sequence[Row]]:
    start = 0
    for i in range(1, len(rows) + 1):
        most = min(share, size(rows[start].kind))
        if i == len(rows) or rows[i].kind != rows[start].kind or i - start >= most:
            yield rows[start:i]
            start = i
