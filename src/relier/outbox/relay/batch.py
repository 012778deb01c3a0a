"""The rows of one claim, their outcomes, and a relay's counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from relier.outbox.publish.target import Outcome
from relier.outbox.row import Row


@dataclass(slots=True)
class RelayCounts:
    """The counters of a relay. `lag_ms`: the age of the last row that was sent."""

    published: int = 0
    failed: int = 0
    dead: int = 0
    deferred: int = 0
    outages: int = 0
    lag_ms: int = 0


REPORTED_COUNTS = ("published", "failed", "dead", "deferred", "outages")


def reported_counts(counts: Sequence[RelayCounts]) -> dict[str, int]:
    """Return what the relays of one process counted since it started, for `rl nodes`."""
    return {name: sum(getattr(each, name) for each in counts) for name in REPORTED_COUNTS}


@dataclass(slots=True)
class ClaimedBatch:
    """The rows of one claim, and the outcomes of those that were tried. The others are released."""

    relay_id: str
    rows: Sequence[Row] = ()
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    renewed_at: float = 0.0
