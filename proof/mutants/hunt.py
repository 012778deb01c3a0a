"""Seeded bugs in the model, each of which some check must catch. They show how good the checks are.

A mutant is a `Model`, or a `Worker`, with a few lines changed. `hunt` runs it through schedules of its profiles until
an invariant is violated. Cases that random schedules rarely reach have directed schedules (proof/directed). If a mutant
survives, an invariant is missing. differential/lua_mutants.py does the same for the real scripts.
"""

from __future__ import annotations

import multiprocessing
import sys
from dataclasses import dataclass

from proof.directed.schedules import SCHEDULES
from proof.mutants.batches import MUTANTS as BATCHES
from proof.mutants.birth_marks import MUTANTS as BIRTHS
from proof.mutants.claims import MUTANTS as WORKING
from proof.mutants.clock import MUTANTS as TICKING
from proof.mutants.events import MUTANTS as TELLING
from proof.mutants.follow_ups import MUTANTS as FOLLOWING
from proof.mutants.limits import MUTANTS as LIMITING
from proof.mutants.locks import MUTANTS as LOCKING
from proof.mutants.members import MUTANTS as JOINING
from proof.mutants.outcomes import MUTANTS as COUNTING
from proof.mutants.repair import MUTANTS as REPAIRING
from proof.mutants.settling import MUTANTS as SETTLING
from proof.mutants.timetables import MUTANTS as TIMETABLES
from proof.mutants.workers import MUTANTS as BEATING
from proof.simulator.simulate import ModelBackend, run_schedule
from proof.simulator.world import World

MUTANTS = (
    *(*TICKING, *WORKING, *SETTLING, *FOLLOWING, *LIMITING, *LOCKING, *BEATING, *BIRTHS, *TIMETABLES),
    *BATCHES,
    *JOINING,
    *TELLING,
    *REPAIRING,
    *COUNTING,
)
SEEDS = 3000


@dataclass(frozen=True, slots=True)
class Caught:
    """How a mutant was caught. `by` is empty if it survived."""

    mutant: str
    by: str
    invariant: str
    tried: int


def hunt(index: int, seeds: int = SEEDS) -> Caught:
    """Run the schedules of its profiles in turn, until one catches it. The directed ones come first, because they are
    few."""
    mutant = MUTANTS[index]
    for name, schedule in SCHEDULES.items():
        if mutant.profiles and name not in mutant.profiles:
            continue
        violation = schedule(World(0, "calm", ModelBackend(mutant.model())))
        if violation is not None:
            return Caught(mutant.name, f"directed {name}", violation.name, 1)
    random_profiles = [name for name in mutant.profiles if name not in SCHEDULES]
    for seed in range(seeds if random_profiles else 0):
        profile = random_profiles[seed % len(random_profiles)]
        outcome = run_schedule(seed, profile, ModelBackend(mutant.model()), worker=mutant.worker)
        if outcome.violation:
            return Caught(mutant.name, f"--seed {seed} --profile {profile}", outcome.violation, seed + 1)
    return Caught(mutant.name, "", "", seeds)


def hunt_all(jobs: int = 2) -> list[Caught]:
    if jobs == 1:
        return [hunt(i) for i in range(len(MUTANTS))]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        return pool.map(hunt, range(len(MUTANTS)), chunksize=1)


def main(jobs: int = 2) -> int:
    """Print which check caught which mutant. Return the number of survivors."""
    results = hunt_all(jobs)
    about = {mutant.name: mutant.about for mutant in MUTANTS}
    for caught in results:
        fell = f"{caught.invariant:32} {caught.by}" if caught.by else "SURVIVED"
        sys.stdout.write(f"  {caught.mutant:30} {fell}\n      {about[caught.mutant]}\n")
    survivors = [caught.mutant for caught in results if not caught.by]
    sys.stdout.write(
        f"{len(results)} mutants, {len(results) - len(survivors)} caught, survivors: {survivors or 'none'}\n"
    )
    return len(survivors)
