"""Run many schedules on all cores. Not in __main__, because the worker processes must be able to import it."""

from __future__ import annotations

import multiprocessing
import sys
import time
from functools import partial

from proof.simulator.simulate import Outcome, run_schedule

CHUNK = 200
SHOWN = 3


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def chunk_of(profile: str | None, start: int, n: int) -> tuple[int, list[Outcome]]:
    """Run some consecutive schedules. Return how many calls they made, and those with a violation."""
    steps, bad = 0, []
    for seed in range(start, start + n):
        outcome = run_schedule(seed, profile)
        steps += outcome.steps
        if outcome.violation:
            bad.append(outcome)
    return steps, bad


def simulate(seeds: int, start: int = 0, profile: str | None = None, jobs: int = 2) -> int:
    """Run schedules on all cores. Print the figures and the first violations. Return the number of violations."""
    began = time.perf_counter()
    runs = [(first, min(CHUNK, start + seeds - first)) for first in range(start, start + seeds, CHUNK)]
    steps, bad, done = 0, list[Outcome](), 0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        work = partial(_numbered, profile)
        for chunk_steps, chunk_bad in pool.imap(work, runs):
            steps += chunk_steps
            # printed at once, because a long run may be stopped early
            for outcome in chunk_bad[: max(0, SHOWN - len(bad))]:
                say(outcome.report)
            bad += chunk_bad
            done += CHUNK
            if done % 50_000 == 0:
                say(f"  … up to seed {start + done:,}, {len(bad)} violations, {time.perf_counter() - began:.0f} s")
    took = time.perf_counter() - began
    rate = f"{took:.1f} s, {seeds / took:,.0f} schedules a second"
    say(f"simulate: {seeds:,} schedules from seed {start}, {steps:,} calls, {rate}: {len(bad)} violations")
    return len(bad)


def _numbered(profile: str | None, run: tuple[int, int]) -> tuple[int, list[Outcome]]:
    return chunk_of(profile, *run)
