"""Run the schedules that the record does not have yet, for a while or until it has all of them.

What the code is when a run begins is what its processes have loaded, so a run may go on while files change.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path

from proof.release.digest import digest_of
from proof.release.record import GOAL, PAGE, RECORD, Proof, SeedRange, of_digest, read, requote, save
from proof.simulator.schedules import CHUNK, chunk_of, say
from proof.simulator.simulate import Outcome

SAVE_EVERY_S = 30


@dataclass(frozen=True, slots=True)
class Ran:
    """Consecutive schedules from a seed on: the calls that they made, and those with a violation."""

    first: int
    schedules: int
    calls: int
    violations: list[Outcome]


@dataclass(frozen=True, slots=True)
class Release:
    """The schedules of a release, and where they are recorded. `digest`: that of the code, if it is known."""

    jobs: int = 2
    goal: int = GOAL
    record: Path = RECORD
    page: Path = PAGE
    digest: str = ""

    def go_on(self, minutes: float | None = None, start: int = 0) -> int:
        """Continue where the record ends. Return the number of violations."""
        proof = of_digest(read(self.record), self.digest or digest_of())
        requote(self.record, self.page)
        say(self._shown(proof))
        until = float("inf") if minutes is None else time.monotonic() + 60 * minutes
        while time.monotonic() < until and (gap := proof.gap(start, self.goal)):
            with multiprocessing.get_context("spawn").Pool(self.jobs) as pool:
                proof, violations = self.prove(proof, _run(pool, gap, until, 2 * self.jobs))
            if violations:
                return violations
            say(self._shown(proof))
        return 0

    def prove(self, known: Proof, runs: Iterable[Ran]) -> tuple[Proof, int]:
        """Record runs that follow one another, now and then and at the end. Stop at a violation: its run does not
        count."""
        proof, calls, first, began = known, 0, -1, time.monotonic()
        saved = began
        try:
            for run in runs:
                if run.violations:
                    for outcome in run.violations:
                        say(outcome.report)
                    return proof, len(run.violations)
                first, calls = run.first if first < 0 else first, calls + run.calls
                proof = known.plus(SeedRange(first, run.first + run.schedules - 1, calls))
                if time.monotonic() - saved > SAVE_EVERY_S:
                    saved = time.monotonic()
                    save(proof, self.record, self.page)
                    rate = (run.first + run.schedules - first) / (saved - began)
                    say(f"  … up to seed {run.first + run.schedules - 1:,}, {rate:,.0f} schedules a second")
        finally:
            if proof is not known:
                save(proof, self.record, self.page)
        return proof, 0

    def _shown(self, proof: Proof) -> str:
        seeds = ", ".join(f"{each.first:,}–{each.last:,}" for each in proof.ranges) or "none yet"
        done = f"{proof.schedules:,} of {self.goal:,} schedules, {proof.calls:,} calls, 0 violations"
        return f"state {proof.digest[:12]}: {done}; seeds: {seeds}"


def _run(pool: Pool, gap: tuple[int, int], until: float, most: int) -> Iterator[Ran]:
    """Run the schedules of a gap in order. No more than `most` chunks are handed out at a time, so that this ends soon
    after its time is over."""
    starts = iter(range(*gap, CHUNK))
    waiting: deque[tuple[int, int, AsyncResult[tuple[int, list[Outcome]]]]] = deque()
    while True:
        while len(waiting) < most and time.monotonic() < until and (start := next(starts, None)) is not None:
            n = min(CHUNK, gap[1] - start)
            waiting.append((start, n, pool.apply_async(chunk_of, (None, start, n))))
        if not waiting:
            return
        first, n, result = waiting.popleft()
        yield Ran(first, n, *result.get())
