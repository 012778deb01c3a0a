"""The parameters of a request to a page, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from relier.errors import InvalidSubmissionError

LONGEST = 512
PLACE = re.compile(r"(-?\d{1,20}(\.\d{1,20})?(e[+-]?\d{1,3})?|-?inf) \S.*", re.ASCII)


class Query:
    """Parameters by name. A missing one is an empty text."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str) -> str:
        value = self._given.get(name, "").strip()
        if len(value) > LONGEST:
            raise InvalidSubmissionError(f"the parameter {name!r} is too long; at most {LONGEST} characters")
        return value

    def needed(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise InvalidSubmissionError(f"the parameter {name!r} is missing")
        return value

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self.text(name)
        if value and value not in allowed:
            raise InvalidSubmissionError(f"{name} must be one of {', '.join(allowed)}, not {value!r:.40}")
        return value

    def cursor(self) -> str:
        """Return the place in an index at which a list continues: a score, a space and an id."""
        value = self.text("cursor")
        if value and not PLACE.fullmatch(value):
            raise InvalidSubmissionError(f"{value!r:.60} is not a cursor; follow the link to the next page instead")
        return value

    def moment(self, name: str) -> int | None:
        """Return a time (ms), or None if it is not given. A time without a zone is in UTC."""
        value = self.text(name)
        if not value:
            return None
        try:
            at = datetime.fromisoformat(value)
            return round(1000 * (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
        except (ValueError, OverflowError) as error:
            says = f"{name} must be a time such as 2026-11-19T14:05Z, not {value!r:.40}"
            raise InvalidSubmissionError(says) from error
