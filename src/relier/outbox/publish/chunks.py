"""Cut a batch into chunks to publish, so that rows of one order key are published one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from relier.outbox.row import Row


class PublishChunks:
    """The chunks of a batch. A chunk has rows of one kind, keeps the rows of a key together, and is small enough that
    each of `threads` gets one.

    `size`: returns the best chunk size for a kind. If a row is not sent, later rows of its key wait until the next
    claim.
    """

    def __init__(self, rows: Sequence[Row], threads: int, size: Callable[[str], int]) -> None:
        self._left = deque(_cut(_by_key(rows), -(-len(rows) // threads), size))
        self._held: set[str] = set()

    def next(self, under_way: Iterable[Sequence[Row]] = ()) -> Sequence[Row]:
        """Return the next chunk that shares no key with a chunk in progress or with an earlier waiting one. Return an
        empty chunk if there is none now."""
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
        """Hold back the key of a row that was not sent."""
        if row.order_key:
            self._held.add(row.order_key)


def _by_key(rows: Sequence[Row]) -> Sequence[Row]:
    """Move the rows of each key next to each other, in order; leave the other rows in place."""
    first: dict[str, int] = {}
    return sorted(rows, key=lambda row: (first.setdefault(row.order_key, row.id) if row.order_key else row.id, row.id))


def _cut(rows: Sequence[Row], share: int, size: Callable[[str], int]) -> Iterable[Sequence[Row]]:
    start = 0
    for i in range(1, len(rows) + 1):
        most = min(share, size(rows[start].kind))
        if i == len(rows) or rows[i].kind != rows[start].kind or i - start >= most:
            yield rows[start:i]
            start = i
