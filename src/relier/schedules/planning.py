"""Decide which due occurrences run: the catch-up rules, as a pure function of the timing and the store's time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from relier.ledger.schedule_records import FIRE_RUNS
from relier.schedules.timings import Timing

CatchUp = Literal["skip", "latest", "all"]
SKIP_GRACE_MS = 60_000
CATCH_UP_LIMIT = 100
MOST_CATCH_UP = 1000


@dataclass(frozen=True, slots=True)
class CatchUpRule:
    """Decide which late occurrences run, after a time in which nobody could fire the schedule.

    `skip`: those that are at most `grace_ms` late, by default a minute. `latest`: only the newest one. `all`: all of
    them, oldest first. With `skip` and `all`, at most the newest `limit` run. With `latest` and `all`, if `grace_ms` is
    set, occurrences that are more than `grace_ms` late do not run.
    """

    kind: CatchUp = "latest"
    limit: int = CATCH_UP_LIMIT
    grace_ms: int | None = None

    @property
    def latest_by_ms(self) -> int | None:
        """How late an occurrence may be and still run. None: no bound."""
        return SKIP_GRACE_MS if self.grace_ms is None and self.kind == "skip" else self.grace_ms


@dataclass(frozen=True, slots=True)
class FirePlan:
    """Describe the effects of one `fire` call.

    `runs`: the occurrences to run, oldest first. `missed`: how many due occurrences are not run. `next_ms`: the next
    occurrence, or None if there is none. If one call cannot submit all runs, `next_ms` is the first run left over.
    """

    runs: tuple[int, ...]
    missed: int
    next_ms: int | None


def plan_fire(timing: Timing, rule: CatchUpRule, intended_ms: int, now_ms: int, most_runs: int = FIRE_RUNS) -> FirePlan:
    """Plan the firing of a schedule whose next occurrence, `intended_ms`, is due at `now_ms`."""
    keep = 1 if rule.kind == "latest" else rule.limit
    times, total = timing.newest(intended_ms, now_ms, keep)
    if len(times) < keep:
        times = [intended_ms, *times]
    grace = rule.latest_by_ms
    wanted = times if grace is None else [at for at in times if now_ms - at <= grace]
    rest = wanted[most_runs:]
    following = rest[0] if rest else timing.after(now_ms)
    return FirePlan(tuple(wanted[:most_runs]), total + 1 - len(wanted), following)
