"""Outcomes of the last three days, read step by step: how tasks ended, how long they waited and ran.

A minute or an hour that is over does not change any more, so a process reads it once and keeps a digest. One page reads
a bounded number of fields, the newest first. So after the start of a dashboard on a busy namespace, it takes some pages
until the longest windows are complete.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from relier.cli.pipelined.steps import Reading, TriedRead, raw
from relier.ledger import keys
from relier.ledger.ledger import Ledger
from relier.ledger.outcomes.records import UNIT_MS, Series, Unit
from relier.ledger.outcomes.replies import counts_in
from relier.slo import WINDOWS, Objective, ObjectiveStatus, WindowStatus
from relier.slo.buckets import percentile_ms
from relier.slo.burn import burn_rate, firing_rules
from relier.slo.history import HOURS, MINUTES

FIELDS_AT_ONCE = 30_000  # fields of closed minutes and hours that one page reads
RECENT = 5  # minutes of "now"
CHARTED = 60
Period = tuple[Unit, int]


@dataclass(frozen=True, slots=True)
class OutcomeDigest:
    """One minute or hour. `kept`: (good, total) per objective; `ended`: by what; `claimed`: per queue, '' the rest."""

    kept: tuple[tuple[int, int], ...] = ()
    ended: Counter[str] = field(default_factory=Counter)
    waits: Counter[int] = field(default_factory=Counter)
    runs: Counter[int] = field(default_factory=Counter)
    claimed: Counter[str] = field(default_factory=Counter)


def digest_of(flat: Sequence[bytes], objectives: Iterable[Objective]) -> OutcomeDigest:
    counts: Counter[Series] = Counter()
    for series, n in counts_in(flat):
        counts[series] += n
    found = OutcomeDigest(tuple(objective.good_and_total(counts) for objective in objectives))
    for series, n in counts.items():
        if series.what == "wait":
            found.waits[series.bucket or 0] += n
            found.claimed[series.queue] += n
        else:
            found.ended[series.what] += n
            if series.bucket is not None:
                found.runs[series.bucket] += n
    return found


@dataclass(frozen=True, slots=True)
class RecentOutcomes:
    """Hold the outcomes known at one moment. A period that has not been read yet is missing."""

    now_ms: int
    digests: dict[Period, OutcomeDigest]
    objectives: tuple[Objective, ...]

    def _last(self, minutes: int) -> list[OutcomeDigest | None]:
        """Return that many whole minutes and the present one or, if these are too many, hours."""
        unit: Unit = "minute" if minutes <= MINUTES else "hour"
        back = minutes if unit == "minute" else minutes // 60
        present = self.now_ms // UNIT_MS[unit]
        return [self.digests.get((unit, period)) for period in range(present - back, present + 1)]

    def judged(self) -> tuple[ObjectiveStatus, ...]:
        """Return how each objective is kept. A window that is not complete yet has no burn rate."""
        windows = {name: self._last(minutes) for name, minutes in WINDOWS.items()}
        found = []
        for nth, objective in enumerate(self.objectives):
            status = {}
            for name, digests in windows.items():
                some = [one.kept[nth] for one in digests if one is not None]
                good, total = sum(one[0] for one in some), sum(one[1] for one in some)
                rate = burn_rate(good, total, objective.target) if None not in digests else None
                status[name] = WindowStatus(good, total, rate)
            rates = {name: window.burn_rate for name, window in status.items()}
            found.append(ObjectiveStatus(objective, status, firing_rules(rates)))
        return tuple(found)

    @property
    def complete(self) -> bool:
        return all(None not in self._last(minutes) for minutes in WINDOWS.values())

    def latencies(self, percents: Sequence[int] = (50, 95, 99)) -> dict[str, dict[str, int | None]]:
        """Return upper bounds (ms) of the percentiles of waits and run times of the last minutes."""
        recent = [one for one in self._last(RECENT) if one is not None]
        sums = {"wait": Counter[int](), "run": Counter[int]()}
        for one in recent:
            sums["wait"].update(one.waits)
            sums["run"].update(one.runs)
        return {what: {f"p{p}": percentile_ms(counts, p) for p in percents} for what, counts in sums.items()}

    def ended(self, minutes: int = RECENT) -> Counter[str]:
        """Return how many tasks ended as done, dead, expired or cancelled in the last minutes."""
        found: Counter[str] = Counter()
        for one in self._last(minutes):
            found.update(one.ended if one is not None else {})
        return found

    @property
    def recent_seconds(self) -> float:
        return RECENT * 60 + self.now_ms % 60_000 / 1000

    def bars(self) -> list[dict[str, float]]:
        """Return tasks per second that ended well and badly, for each minute of the last hour that is over."""
        present = self.now_ms // 60_000
        periods = range(present - CHARTED, present)
        known = {period: self.digests[("minute", period)] for period in periods if ("minute", period) in self.digests}
        if not any(one.ended for one in known.values()):
            return []
        return [
            {"at_ms": period * 60_000, "done": ended["done"] / 60, "dead": (ended["dead"] + ended["expired"]) / 60}
            for period, ended in ((period, known[period].ended if period in known else Counter()) for period in periods)
        ]

    def claim_rate(self, queue: str) -> float | None:
        """Return how many tasks left a queue per second, in this minute and the one before; None if unknown."""
        some = [one for one in self._last(1) if one is not None]
        if not some or (any(one.claimed[""] for one in some) and not any(one.claimed[queue] for one in some)):
            return None  # the hash of the minute was full: some queues are counted without their names
        return sum(one.claimed[queue] for one in some) / (60 + self.now_ms % 60_000 / 1000)


class OutcomeMemory:
    """The digests that one process keeps."""

    def __init__(self, objectives: tuple[Objective, ...]) -> None:
        self._objectives = objectives
        self._digests: dict[Period, OutcomeDigest] = {}
        self._born = b""
        self._turn = threading.Lock()

    def reading(self, ledger: Ledger) -> Reading[RecentOutcomes]:
        """Read the present minute and hour, and of those that are over what was not read before."""
        time, born = yield [raw("TIME"), raw("HGET", keys.spell(ledger.prefix, "meta"), "born")]
        now_ms = int(time[0]) * 1000 + int(time[1]) // 1000
        missing = self._missing(now_ms, born or b"")
        present: list[Period] = [(unit, now_ms // UNIT_MS[unit]) for unit in UNIT_MS]
        answers = yield [
            *(TriedRead(raw("HGETALL", _key(ledger, period))) for period in present),
            *(TriedRead(raw("HLEN", _key(ledger, period))) for period in missing),
        ]
        now = {period: self._digest(flat) for period, flat in zip(present, answers, strict=False)}
        sizes = dict(zip(missing, answers[len(present) :], strict=True))
        wanted = _affordable(sizes)
        flats = (yield [TriedRead(raw("HGETALL", _key(ledger, period))) for period in wanted]) if wanted else []
        read = {period: self._digest(flat) for period, flat in zip(wanted, flats, strict=True)}
        empty = {period: self._digest(()) for period, size in sizes.items() if not size}
        with self._turn:
            self._digests |= read | empty
            return RecentOutcomes(now_ms, self._digests | now, self._objectives)

    def _missing(self, now_ms: int, born: bytes) -> list[Period]:
        """Return the periods that are over and not known, the newest first. Forget those that nobody asks for."""
        backs: dict[Unit, int] = {"minute": MINUTES, "hour": HOURS}
        asked: list[Period] = []
        for unit, back in backs.items():
            present = now_ms // UNIT_MS[unit]
            asked += [(unit, period) for period in range(present - 1, present - back - 1, -1)]
        with self._turn:
            if born != self._born:  # the store was emptied or replaced
                self._born, self._digests = born, {}
            self._digests = {period: self._digests[period] for period in asked if period in self._digests}
            return [period for period in asked if period not in self._digests]

    def _digest(self, flat: object) -> OutcomeDigest:
        return digest_of(flat if isinstance(flat, list) else (), self._objectives)


def _key(ledger: Ledger, period: Period) -> str:
    unit, number = period
    return keys.spell(ledger.prefix, "outcomes", f"{unit[0]}{number}")


def _affordable(sizes: dict[Period, object]) -> list[Period]:
    """Return the periods to read now: at least one, and as many as FIELDS_AT_ONCE allows."""
    chosen: list[Period] = []
    fields = 0
    for period, size in sizes.items():
        if isinstance(size, int) and size:
            fields += size
            if chosen and fields > FIELDS_AT_ONCE:
                break
            chosen.append(period)
    return chosen
