"""Rows of one claim, what came of them, and what a relay counts of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from relier.outbox.publish.target import Outcome
from relier.outbox.row import Row


@dataclass(slots=True)
class RelayCounts:
    """What this relay has done. `lag_ms`: the age of the last row it sent."""

    published: int = 0
    failed: int = 0
    dead: int = 0
    deferred: int = 0
    outages: int = 0
    lag_ms: int = 0


@dataclass(slots=True)
class ClaimedBatch:
    """Rows of one claim, and what came of those that were tried. The others are given back."""

    boot: str
    rows: Sequence[Row] = ()
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    renewed_at: float = 0.0
