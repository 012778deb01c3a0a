"""Read outcomes from the ledger: six hours by the minute, three days by the hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from relier.ledger.ledger import Ledger
from relier.ledger.outcomes.records import UNIT_MS, OutcomePage, PeriodCounts, Series, Unit
from relier.store.call import Call
from relier.store.sync_wire import run_sync

MINUTES = 360
HOURS = 72


@dataclass(frozen=True, slots=True)
class OutcomeHistory:
    """The outcomes of the last three days, as read at `now_ms` of the store's clock."""

    now_ms: int
    minutes: tuple[PeriodCounts, ...]
    hours: tuple[PeriodCounts, ...]

    def last(self, minutes: int) -> Counter[Series]:
        """Return what was counted in the last minutes: that many whole ones, and the present one.

        More than six hours are counted by the hour: whole hours, and the present one.
        """
        if minutes <= MINUTES:
            return _sum(self.minutes, self.now_ms, "minute", minutes)
        return _sum(self.hours, self.now_ms, "hour", minutes // 60)


def _sum(periods: tuple[PeriodCounts, ...], now_ms: int, unit: Unit, back: int) -> Counter[Series]:
    first = (now_ms // UNIT_MS[unit] - back) * UNIT_MS[unit]
    counts: Counter[Series] = Counter()
    for period in periods:
        if period.start_ms >= first:
            counts.update(period.counts)
    return counts


async def read_history(run: Callable[[Call[OutcomePage]], Awaitable[OutcomePage]], ledger: Ledger) -> OutcomeHistory:
    """Read all outcomes: one round trip for minutes and one for hours, or more where thousands of series are counted.

    `run` executes one call: `client.arun`, or the `run` of a store.
    """
    now_ms, minutes = await _read_periods(run, ledger, "minute", MINUTES)
    _, hours = await _read_periods(run, ledger, "hour", HOURS)
    return OutcomeHistory(now_ms, minutes, hours)


def read_history_sync(run: Callable[[Call[OutcomePage]], Any], ledger: Ledger) -> OutcomeHistory:
    """Read all outcomes with a `run` that blocks."""

    async def answered(call: Call[OutcomePage]) -> OutcomePage:
        page: OutcomePage = run(call)
        return page

    return run_sync(read_history(answered, ledger))


async def _read_periods(
    run: Callable[[Call[OutcomePage]], Awaitable[OutcomePage]], ledger: Ledger, unit: Unit, back: int
) -> tuple[int, tuple[PeriodCounts, ...]]:
    page = await run(ledger.outcomes(unit, back))
    now_ms, periods = page.now_ms, list(page.periods)
    while page.cursor:
        page = await run(ledger.outcomes(unit, back, page.cursor))
        periods += page.periods
    return now_ms, tuple(periods)
