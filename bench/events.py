"""What events cost the store, beside the bare moves: a task's whole life, alone and a hundred to a script.

Script time is Redis' own measure (commandstats of EVALSHA). The modes run in turns on one server, in many short rounds,
and each round compares neighbours, because the machine may be shared: the median of the differences is what counts.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable

from bench.ledger import TASKS, Bench, line
from relier.ledger.events.writing import EventWriting
from relier.ledger.ledger import load_scripts
from relier.settings import EventMode, Settings
from relier.store import SyncStore

ROUNDS = 60
LIFE = ("submit", "claim", "commit")
TARGETS = {1: 5.0, 100: 2.0}  # µs per task; below this, `always` may be the default
MODES: tuple[tuple[str, EventMode], ...] = (
    ("never", "never"),
    ("watched, nobody reads", "watched"),
    ("always", "always"),
)


def open_modes(folder: str) -> dict[str, Bench]:
    benches = {}
    for what, mode in MODES:
        settings = Settings(redis_url=f"embedded://{folder}", namespace=f"bench-{mode}", events=mode)
        benches[what] = Bench(SyncStore(settings, load_scripts(EventWriting(mode))), settings)
    return benches


def clear(bench: Bench) -> None:
    """Remove ended records, so that all rounds see a store of the same size."""
    for key in bench.store.command("KEYS", f"{bench.ledger.prefix}[tqe]:*"):
        bench.store.command("UNLINK", key)


def life_us(bench: Bench, batch: int, nth: int) -> float:
    return sum(bench.costs[f"{move} {batch}"][nth] for move in LIFE)


def report(benches: dict[str, Bench], batch: int) -> None:
    print(f"\nA whole life, {batch} to a script: script time per task, {ROUNDS} rounds of {TASKS} tasks")
    bare = benches["never"]
    for what, bench in benches.items():
        lives = [life_us(bench, batch, nth) for nth in range(ROUNDS)]
        inner = sum(bench.commands[f"{move} {batch}"] for move in LIFE)
        line(f"{what}: median ({inner:.2f} commands inside)", statistics.median(lives), "µs")
        line(f"{what}: least", min(lives), "µs")
    for what, bench in list(benches.items())[1:]:
        extra = [life_us(bench, batch, nth) - life_us(bare, batch, nth) for nth in range(ROUNDS)]
        least = sum(min(bench.costs[f"{m} {batch}"]) - min(bare.costs[f"{m} {batch}"]) for m in LIFE)
        target = TARGETS[batch] if what == "always" else None
        line(f"events, {what}: median of the differences", statistics.median(extra), "µs", target, 2)
        line(f"events, {what}: difference of the least", least, "µs", target, 2)


def run_in_turns(
    open_modes: Callable[[str], dict[str, Bench]], report: Callable[[dict[str, Bench], int], None]
) -> None:
    """Measure whole lives in every mode, round by round, and report them for single tasks and for batches."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        benches = open_modes(folder)
        for _ in range(ROUNDS):
            for batch in (1, 100):
                for bench in benches.values():
                    bench.life(batch)
                    clear(bench)
        for batch in (1, 100):
            report(benches, batch)
        for bench in benches.values():
            bench.store.close()


def main() -> None:
    run_in_turns(open_modes, report)


if __name__ == "__main__":
    main()
