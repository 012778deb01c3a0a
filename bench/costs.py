"""What a feature costs the store per task, beside the bare moves: in turns, on one server."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence

from bench.fleets import Table
from bench.ledger import Bench
from relier.ledger.ledger import load_scripts
from relier.settings import Settings
from relier.store import SyncStore

BARE = "bare"


def compare_lives(title: str, kinds: Mapping[str, type[Bench]], rounds: int, sizes: Sequence[int]) -> Table:
    """Measure the lives of tasks of several kinds, one of them BARE. `sizes`: tasks to a script."""
    table = Table(title)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        url = f"embedded://{folder}"
        with SyncStore(Settings(redis_url=url, namespace="bench"), load_scripts()) as store:
            sides = {
                name: kind(store, Settings(redis_url=url, namespace=f"side{number}"))
                for number, (name, kind) in enumerate(kinds.items())
            }
            for number in range(rounds):
                for bench in list(sides.values())[:: 1 if number % 2 else -1]:
                    for size in sizes:
                        bench.life(size)
            for size in sizes:
                _report(table, sides, size)
    return table


def _report(table: Table, sides: Mapping[str, Bench], size: int) -> None:
    whole = dict.fromkeys(sides, 0.0)
    for move in ("submit", "claim", "commit"):
        for name, bench in sides.items():
            cost = bench.least(f"{move} {size}")
            whole[name] += cost
            inner = bench.commands[f"{move} {size}"]
            table.line(f"{move}, {size} to a script, {name} ({inner:.1f} commands)", round(cost, 1), "µs")
    for name, cost in whole.items():
        table.line(f"life, {size} to a script, {name}", round(cost, 1), "µs")
        if name != BARE:
            table.line(f"life, {size} to a script, {name}: ratio", round(cost / whole[BARE], 1), "×")
