"""The cost of counting outcomes for the store, over a task's whole life: one task per script, and a hundred per script.

Measured as in bench/events.py: on and off run in turns on one server, in many short rounds, and each round compares
neighbours.
"""

from __future__ import annotations

import statistics

from bench.events import ROUNDS, life_us, run_in_turns
from bench.ledger import TASKS, Bench, line
from relier.ledger.events.writing import EventWriting
from relier.ledger.ledger import load_scripts
from relier.ledger.outcomes.writing import OutcomeCounting
from relier.settings import Settings
from relier.store import SyncStore

LIFE = ("submit", "claim", "commit")
TARGETS = {1: None, 100: 2.0}  # µs a task


def open_modes(folder: str) -> dict[str, Bench]:
    benches = {}
    for mode in ("off", "on"):
        settings = Settings(redis_url=f"embedded://{folder}", namespace=f"bench-{mode}", events="never")
        scripts = load_scripts(EventWriting("never"), OutcomeCounting(mode == "on"))
        benches[mode] = Bench(SyncStore(settings, scripts), settings)
    return benches


def report(benches: dict[str, Bench], batch: int) -> None:
    print(f"\nA whole life, {batch} to a script: script time per task, {ROUNDS} rounds of {TASKS} tasks")
    off, on = benches["off"], benches["on"]
    for what, bench in benches.items():
        lives = [life_us(bench, batch, nth) for nth in range(ROUNDS)]
        inner = sum(bench.commands[f"{move} {batch}"] for move in LIFE)
        line(f"{what}: median ({inner:.2f} commands inside)", statistics.median(lives), "µs")
        line(f"{what}: least", min(lives), "µs")
    extra = [life_us(on, batch, nth) - life_us(off, batch, nth) for nth in range(ROUNDS)]
    least = sum(min(on.costs[f"{m} {batch}"]) - min(off.costs[f"{m} {batch}"]) for m in LIFE)
    line("outcomes: median of the differences", statistics.median(extra), "µs", TARGETS[batch], 2)
    line("outcomes: difference of the least", least, "µs", TARGETS[batch], 2)


def main() -> None:
    run_in_turns(open_modes, report)


if __name__ == "__main__":
    main()
