"""Ten-step tasks whose workers are killed at random, 200 times: the result of a step is recorded once, and not
repeated.

    python -m bench.steps [--quick]

Each step works a little, has an effect (a line in a diary), and returns the number of its attempt. The diary also
contains the result that each attempt got for each step. A kill between an effect and its record repeats that effect:
this is what "at least once" means, and the bench prints how often it happened. But once a step is recorded, no later
attempt may call it again, or get a different result.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from typing import NamedTuple

import msgspec

from bench import guard_jobs as jobs
from bench.fleets import Table, a_fleet, leave, quick
from tests.support.fleet import Fleet, Member

LEASE_S = 1.0
WORKERS = 4
MODULE = jobs.__name__


class Line(NamedTuple):
    """What a process did: begin, effect, kept, end. `attempt`: the attempt whose effect was kept."""

    what: str
    task: str
    step: int
    attempt: int
    pid: int


class Run:
    """Run ten-step tasks on workers with one slot each, until enough of them were killed during a task."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.ids: list[str] = []
        self.kills = 0
        self.inside = 0

    def _start(self) -> Member:
        return self._fleet.start("worker", MODULE, "--concurrency", "1")

    def lines(self) -> list[Line]:
        file = self._fleet.folder / "guards"
        told = map(str.split, file.read_text().splitlines() if file.exists() else [])
        return [Line(what, task, int(step), int(attempt), int(pid)) for what, task, step, attempt, pid in told]

    def _busy(self) -> dict[int, str]:
        """Return the processes that run a task, with the last thing they did."""
        last = {line.pid: line.what for line in self.lines()}
        return {pid: what for pid, what in last.items() if what != "end"}

    def until_killed(self, times: int) -> None:
        workers = [self._start() for _ in range(WORKERS)]
        while self.kills < times:
            self._keep_busy()
            time.sleep(random.uniform(0.02, 0.25))
            victims = [worker for worker in workers if worker.pid in self._busy()]
            if not victims:
                continue
            victim = random.choice(victims)
            victim.kill_all()
            what = self._busy().get(victim.pid)  # the task may have ended meanwhile
            self.kills += what is not None
            self.inside += what == "effect"
            workers[workers.index(victim)] = self._start()

    def _keep_busy(self) -> None:
        """Keep as many unfinished tasks as there are workers."""
        stats = self._fleet.stats()
        open_ = len(self.ids) - sum(stats.ended.values())
        self.ids += [receipt.id for receipt in jobs.ten_steps.push_many([()] * max(0, WORKERS - open_))]


def report(table: Table, lines: list[Line], returned: dict[str, list[int]]) -> None:
    kept: dict[tuple[str, int], set[int]] = defaultdict(set)
    effects: dict[tuple[str, int], list[int]] = defaultdict(list)
    again = 0
    for line in lines:  # in the order in which it happened
        place = line.task, line.step
        if line.what == "kept":
            kept[place].add(line.attempt)
        elif line.what == "effect":
            again += place in kept
            effects[place].append(line.attempt)
    attempts = Counter(line.task for line in lines if line.what == "begin")
    results = {(task, step): attempt for task, done in returned.items() for step, attempt in enumerate(done)}
    table.line("attempts", attempts.total())
    table.line("most attempts of one task", max(attempts.values()))
    table.line("times a step was found recorded, and skipped", sum(line.what == "kept" for line in lines) - len(kept))
    table.line("effects repeated: killed before they were recorded", sum(map(len, effects.values())) - len(effects))
    table.exactly("steps recorded", len(kept), jobs.STEPS * len(returned))
    table.exactly("steps recorded with more than one result", sum(len(some) > 1 for some in kept.values()), 0)
    table.exactly("steps recorded otherwise than returned", sum(kept[place] != {n} for place, n in results.items()), 0)
    table.exactly("records without exactly one effect", sum(effects[at].count(n) != 1 for at, n in results.items()), 0)
    table.exactly("steps run again after they were recorded", again, 0)


def main() -> None:
    kills = 15 if quick() else 200
    with a_fleet(LEASE_S) as fleet:
        run = Run(fleet)
        began = time.monotonic()
        run.until_killed(kills)
        tasks = fleet.wait_done(run.ids, 120)
        took = time.monotonic() - began
        lines = run.lines()
    returned = {task.record.id: msgspec.json.decode(task.result or b"[]", type=list[int]) for task in tasks}
    table = Table(f"{len(tasks)} ten-step tasks, {run.kills} times killed in the middle of one, in {took:.0f} s")
    table.exactly("kills that met a task between its first and last step", run.kills, kills)
    table.line("of these, between an effect and what was known of it", run.inside)
    table.exactly("tasks that did not complete", len(run.ids) - len(returned), 0)
    report(table, lines, returned)
    leave(table)


if __name__ == "__main__":
    main()
