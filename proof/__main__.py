"""python -m proof: simulate, replay, store, exhaustive, mutants, differential, ci, release."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from proof import exhaustive
from proof.mutants import hunt
from proof.release.run import Release
from proof.simulator.profiles import BY_NAME
from proof.simulator.schedules import say, simulate
from proof.simulator.simulate import run_world
from proof.simulator.world import World
from proof.store import mutants as store_mutants
from proof.store import schedules as store_schedules

CI_SCHEDULES = 10_000
STORE_SCHEDULES = 1_000


def replay(seed: int, profile: str | None, trace: bool) -> int:
    """Run one schedule again, and print its last events or all of them."""
    world = World(seed, profile, trace=trace)
    outcome = run_world(world)
    if trace:
        say("\n".join(world.history()))
    say(outcome.report or f"seed {seed} ({outcome.profile}): {outcome.steps} calls, no violation")
    return int(bool(outcome.violation))


def differential(seeds: int, start: int = 0) -> int:
    """Run the same calls on the model and on the real scripts. Raise at the first difference."""
    from proof.differential.harness import main

    say(f"differential: {main(seeds, start):,} calls compared on model and scripts")
    return 0


def ci(jobs: int) -> int:
    """Run the checks that every change must pass."""
    parts: tuple[Callable[[], int], ...] = (
        lambda: simulate(CI_SCHEDULES, jobs=jobs),
        lambda: exhaustive.main(jobs),
        lambda: hunt.main(jobs),
        lambda: store_schedules.main(STORE_SCHEDULES),
        lambda: store_mutants.main(),
        lambda: differential(200),
    )
    return sum(part() for part in parts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("simulate", help="seeded schedules on the model")
    one.add_argument("--seeds", type=int, default=1000)
    again = commands.add_parser("replay", help="one schedule again")
    again.add_argument("--seed", type=int, required=True)
    again.add_argument("--trace", action="store_true", help="every event, not the last twenty")
    store = commands.add_parser("store", help="schedules and mutants of the store layer")
    store.add_argument("--seeds", type=int, default=STORE_SCHEDULES)
    commands.add_parser("exhaustive", help="every interleaving of small cases")
    commands.add_parser("mutants", help="seeded bugs, each of which must be caught")
    real = commands.add_parser("differential", help="the same calls on the real scripts")
    real.add_argument("--seeds", type=int, default=200)
    commands.add_parser(
        "ci", help="10^4 schedules, 10^3 of the store, the exhaustive search, the mutants, 200 differential seeds"
    )
    release = commands.add_parser("release", help="continue the 10^6 schedules of a release, and record them")
    release.add_argument("--minutes", type=float, help="how long; by default until all are done")
    for name in ("simulate", "release", "differential", "store"):
        commands.choices[name].add_argument("--start", type=int, default=0)
    for name in ("simulate", "replay"):
        commands.choices[name].add_argument("--profile", choices=sorted(BY_NAME))
    for name in ("simulate", "exhaustive", "mutants", "ci", "release"):
        commands.choices[name].add_argument("--jobs", type=int, default=2)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Return 1 if anything was violated."""
    args = _parser().parse_args(argv)
    commands: dict[str, Callable[[], int]] = {
        "simulate": lambda: simulate(args.seeds, args.start, args.profile, args.jobs),
        "replay": lambda: replay(args.seed, args.profile, args.trace),
        "store": lambda: store_schedules.main(args.seeds, args.start) + store_mutants.main(),
        "exhaustive": lambda: exhaustive.main(args.jobs),
        "mutants": lambda: hunt.main(args.jobs),
        "differential": lambda: differential(args.seeds, args.start),
        "ci": lambda: ci(args.jobs),
        "release": lambda: Release(args.jobs).go_on(args.minutes, args.start),
    }
    return 1 if commands[args.command]() else 0


if __name__ == "__main__":
    sys.exit(main())
