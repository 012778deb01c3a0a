"""The move of outcomes: read how tasks ended, and how long they waited and ran."""

from __future__ import annotations

from functools import partial

from relier.errors import InvalidSubmissionError
from relier.ledger.checks import check_number
from relier.ledger.moves.base import MoveBase
from relier.ledger.outcomes.records import UNIT_MS, OutcomePage, Unit
from relier.ledger.outcomes.replies import outcome_page
from relier.store.call import Call

MOST_PERIODS = 500


class OutcomeMoves(MoveBase):
    def outcomes(self, unit: Unit, back: int, cursor: str = "") -> Call[OutcomePage]:
        """Read the outcomes of the present minute or hour, and of `back` before it."""
        if unit not in UNIT_MS:
            raise InvalidSubmissionError(f"unknown unit {unit!r}; use one of {', '.join(UNIT_MS)}")
        check_number("back", back, 0, MOST_PERIODS)
        return self._call("outcomes", [unit[0], back, cursor], partial(outcome_page, unit))
