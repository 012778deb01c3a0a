"""The moves on batches. `submit` adds members. Every move that ends a task also counts it in its batch."""

from __future__ import annotations

from functools import partial

from relier.ledger.batches import replies as batch_replies
from relier.ledger.batches.membership import BatchHeader, pack
from relier.ledger.batches.records import BatchAnswer, BatchCancelled, BatchMember, BatchPage, BatchRecord, Stage
from relier.ledger.checks import check_number, check_word
from relier.ledger.defaults import MEMBER_SPAN
from relier.ledger.moves.base import MoveBase
from relier.store.call import Call

BATCH_PAGE = 100


class BatchMoves(MoveBase):
    def open_batch(self, header: BatchHeader) -> Call[BatchAnswer]:
        """Create a batch without members. A sealed batch ends at once, and its callbacks are queued."""
        check_word("the batch id", header.id)
        check_number("lease_ms", header.lease_ms, 1 if header.open else 0)
        return self._call("open_batch", [header.id, pack(header.values())], batch_replies.answered)

    def extend_batch(self, batch_id: str) -> Call[BatchAnswer]:
        """Extend the lease of an open batch. The verdict `closed` means that it is no longer open."""
        check_word("the batch id", batch_id)
        return self._call("extend_batch", [batch_id], batch_replies.answered)

    def seal_batch(self, batch_id: str, *, abandoned: bool = False) -> Call[BatchAnswer]:
        """Seal an open batch, after all members were added. `abandoned`: some are missing, so `then` must never run."""
        check_word("the batch id", batch_id)
        return self._call("seal_batch", [batch_id, "1" if abandoned else ""], batch_replies.answered)

    def cancel_batch(self, batch_id: str, cursor: str = "", most: int = BATCH_PAGE) -> Call[BatchCancelled]:
        """Cancel a batch, and up to `most` of its live members. Call again with the cursor for the other members."""
        check_word("the batch id", batch_id)
        return self._call("cancel_batch", [batch_id, cursor, min(most, BATCH_PAGE)], batch_replies.cancelled)

    def batch(self, batch_id: str) -> Call[BatchRecord]:
        """Read one batch. Raises BatchNotFoundError."""
        check_word("the batch id", batch_id)
        return self._call("batch", [batch_id], partial(batch_replies.batch, batch_id))

    def batches(self, cursor: str | None = None, most: int = BATCH_PAGE) -> Call[BatchPage]:
        """Read one page of the outermost batches, running ones first."""
        check_number("most", most, 1, 1000)
        return self._call("batches", [cursor or "", most], batch_replies.batches)

    def members(
        self, batch_id: str, stage: Stage | None = None, *, skip: int = 0, most: int = BATCH_PAGE
    ) -> Call[tuple[BatchMember, ...]]:
        """Read one page of the members of a batch, ordered by place: those at one stage, or all, stage by stage.

        A member that ends between two calls changes its stage. So the pages may miss it, or repeat another member.
        """
        check_word("the batch id", batch_id)
        check_number("most", most, 1, 1000)
        first = 0 if stage is None else 2 * MEMBER_SPAN * list(Stage).index(stage)
        end = (2 * MEMBER_SPAN * len(Stage)) if stage is None else first + 2 * MEMBER_SPAN
        return self._call("members", [batch_id, first, end, skip, most], batch_replies.members)

    def results(self, batch_id: str, cursor: str = "0", field: str = "") -> Call[tuple[dict[str, bytes], str]]:
        """Read a page of a batch's results, starting at a cursor, or one field. Return results and the next cursor."""
        check_word("the batch id", batch_id)
        return self._call("results", [batch_id, cursor, field], batch_replies.results)
