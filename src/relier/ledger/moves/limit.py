"""The moves on limits at run time: set numbers, and read limits and lanes. For operators."""

from __future__ import annotations

from relier.ledger import replies
from relier.ledger.checks import check_number, check_word
from relier.ledger.lanes import LanePage
from relier.ledger.limit_records import LimitChange, LimitNumbers, LimitPage
from relier.ledger.moves.base import MoveBase
from relier.store.call import Arg, Call


class LimitMoves(MoveBase):
    def limit(self, name: str, version: int, numbers: LimitNumbers | None, cursor: str = "0") -> Call[LimitChange]:
        """Set the numbers of a limit by its name or by one of its keys, or clear them with None.

        `version`: the version that `limits` returned, or 0 if nothing is set. One call wakes the tasks of one page.
        Repeat it with the cursor and the version of the answer until the cursor is empty.
        """
        check_word("the name of the limit", name)
        words: list[Arg] = ["", "", ""]
        if numbers is not None:
            for what in ("concurrency", "interval_us", "tolerance_us"):
                check_number(what, getattr(numbers, what))
            words = [numbers.concurrency, numbers.interval_us, numbers.tolerance_us]
        return self._call("limit", [name, version, *words, cursor], lambda raw: replies.limit_change(name, raw))

    def limits(self, cursor: str = "") -> Call[LimitPage]:
        """Read one page of the keys that limit live tasks, and one of operators' numbers. `read_limits` reads all."""
        keys, _, chosen = (cursor or "0 0").partition(" ")
        return self._call("limits", [keys, chosen], replies.limit_page)

    def lanes(self, queue: str = "", cursor: str = "0") -> Call[LanePage]:
        """Read one page of the lanes with waiting tasks, of one queue or all queues. `read_lanes` reads all pages."""
        return self._call("lanes", [queue, cursor], replies.lane_page)
