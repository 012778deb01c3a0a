"""Read the replies of outcomes.lua."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from relier.ledger.outcomes.records import COUNTED, UNIT_MS, OutcomePage, PeriodCounts, Series, Unit


def outcome_page(unit: Unit, raw: Any) -> OutcomePage:
    """Read a page. Fields that another program wrote are left out."""
    now_ms, cursor, *rows = raw
    periods = tuple(PeriodCounts(int(period) * UNIT_MS[unit], dict(counts_in(flat))) for period, flat in rows)
    return OutcomePage(int(now_ms), cursor.decode(), periods)


def counts_in(flat: Sequence[bytes]) -> Iterator[tuple[Series, int]]:
    """Yield the counts of one minute or hour, from the fields and values of its hash."""
    for field, n in zip(flat[::2], flat[1::2], strict=True):
        first, *place = field.decode("utf-8", "replace").split("\n")
        what, _, bucket = first.partition(" ")
        if len(place) == 2 and what in COUNTED and (bucket == "-" or bucket.isdigit()) and n.isdigit():
            yield Series(what, None if bucket == "-" else int(bucket), *place), int(n)
