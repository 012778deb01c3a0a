"""The values that readers of outcomes get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

import msgspec

Unit = Literal["minute", "hour"]
UNIT_MS: Mapping[Unit, int] = {"minute": 60_000, "hour": 3_600_000}
Counted = Literal["done", "dead", "cancelled", "expired", "wait"]
COUNTED: tuple[Counted, ...] = get_args(Counted)


class Series(NamedTuple):
    """A group of outcomes that are counted together. `bucket`: of the wait, or of the last run; None if no attempt was
    running.

    `queue` and `name` are empty for outcomes that a full hash counted without them.
    """

    what: Counted
    bucket: int | None
    queue: str
    name: str


class PeriodCounts(msgspec.Struct, frozen=True):
    """The outcomes of one minute or one hour. `start_ms`: when it began, by the store's clock."""

    start_ms: int
    counts: Mapping[Series, int]


class OutcomePage(msgspec.Struct, frozen=True):
    """Outcomes of some minutes or hours, oldest first. `cursor`: where the next page begins, empty at the end."""

    now_ms: int
    cursor: str
    periods: tuple[PeriodCounts, ...]
