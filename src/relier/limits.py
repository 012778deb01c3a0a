"""Limits at run time, as a task declares them: how many tasks may run at once, and how often one may start."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from relier.errors import ConfigurationError
from relier.ledger.limit_records import LimitNumbers

UNITS_US = {"ms": 1000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000, "day": 86_400_000_000}
NAMES = {"second": "s", "sec": "s", "minute": "min", "m": "min", "hour": "h", "d": "day"}
RATE = re.compile(r"\s*(\d+)\s*/\s*(\d*)\s*([a-z]+)\s*", re.IGNORECASE)
BURST_US = 100_000  # without `burst`, as many tasks may start at once as the rate allows in this time
MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Limit:
    """Limit how many tasks run at once (`concurrency`) and how often one starts (`rate`, such as "100/min").

    `per` decides which tasks share the limit. By default, all calls of the task do. A template over the arguments, such
    as `tenant:{tenant_id}`, gives each resulting text, the key, its own limit. Tasks with the same key share the limit.
    With "queue", all tasks in the same queue with such a limit share it; with "namespace", all tasks with such a limit.

    `burst`: how many tasks may start at once under a rate. By default, as many as the rate allows in a tenth of a
    second, but at least one. In any period, at most the number of the rate plus `burst` tasks start.
    """

    concurrency: int | None = None
    rate: str | None = None
    per: str | None = None
    burst: int | None = None

    def __post_init__(self) -> None:
        if self.concurrency is None and self.rate is None:
            raise self._wrong("give concurrency, rate or both")
        for what in ("concurrency", "burst"):
            value = getattr(self, what)
            if value is not None and not (_is_whole(value) and 1 <= value <= MOST):
                raise self._wrong(f"{what} must be a whole number from 1 to {MOST:,}")
        if self.burst is not None and self.rate is None:
            raise self._wrong("burst needs a rate")
        if self.per is not None and (not isinstance(self.per, str) or not self.per):
            raise self._wrong('per must be a template such as "tenant:{tenant_id}", "queue" or "namespace"')
        self.numbers()

    def numbers(self) -> LimitNumbers:
        """Return the limit as numbers, as the ledger stores it."""
        if self.rate is None:
            return LimitNumbers(self.concurrency or 0)
        interval = self._interval_us(self.rate)
        burst = self.burst or max(1, BURST_US // interval)
        return LimitNumbers(self.concurrency or 0, interval, interval * burst)

    def _interval_us(self, rate: Any) -> int:
        """Return the time between two starts (µs)."""
        found = RATE.fullmatch(rate) if isinstance(rate, str) else None
        unit = found[3].lower() if found else ""
        one = unit if unit in UNITS_US else unit.removesuffix("s") or unit
        unit = NAMES.get(one, one)
        if not found or unit not in UNITS_US or not int(found[1]) or found[2] == "0":
            raise self._wrong('rate must be a number per time, such as "10/s", "100/min", "1000/h" or "5/10s"')
        interval = int(found[2] or 1) * UNITS_US[unit] // int(found[1])
        if not 1 <= interval <= 366 * UNITS_US["day"]:
            raise self._wrong("the rate must be from one per year to one per microsecond")
        return interval

    def _wrong(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self!r:.160} is invalid: {what}")


def rate_text(interval_us: int) -> str:
    """Return the rate of a start every `interval_us`, such as "100/min", or an empty string for 0."""
    if not interval_us:
        return ""
    for unit, size in UNITS_US.items():
        per_unit = round(size / interval_us)
        if unit != "ms" and per_unit and size // per_unit == interval_us:
            return f"{per_unit}/{unit}"
    seconds, rest = divmod(interval_us, UNITS_US["s"])
    return f"1/{seconds}s" if not rest else f"1/{interval_us / UNITS_US['ms']:g}ms"


def numbers_in_words(numbers: LimitNumbers) -> str:
    """Describe what a limit allows, in words that fit into a sentence."""
    tasks = "1 task" if numbers.concurrency == 1 else f"{numbers.concurrency:,} tasks"
    parts = [f"{tasks} at once"] if numbers.concurrency else []
    if numbers.interval_us:
        burst = numbers.tolerance_us // numbers.interval_us
        parts.append(rate_text(numbers.interval_us) + (f" in bursts of {burst:,}" if burst > 1 else ""))
    return " and ".join(parts) or "any number of tasks at any rate"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
