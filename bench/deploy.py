"""A deploy through a change of a task's arguments: old and new workers side by side on one queue, killed at random.

    python -m bench.deploy [--quick]

Old code pushes euros, new code pushes cents with a currency, and a task that old code does not know. Workers of both
kinds take from the same queue; some are killed (kill -9), and each that is replaced may be an old one until the deploy
is over. Nothing may be lost, and nothing run by the wrong code: a new payload by old code, or an old one unmigrated.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from bench.fleets import Table, a_fleet, leave, quick
from relier import RlTask
from relier.options import TaskOptions
from relier.states import State
from tests.support.fleet import Fleet, Member

LEASE_S = 1.0
OLD, NEW = "bench.deploys.v1", "bench.deploys.v2"

old_charge: RlTask[..., str] = RlTask(lambda *_: None, TaskOptions("deploy.charge", schema_version=1))
mid_charge: RlTask[..., str] = RlTask(lambda *_: None, TaskOptions("deploy.charge", schema_version=2))
new_charge: RlTask[..., str] = RlTask(lambda *_, **__: None, TaskOptions("deploy.charge", schema_version=3))
refund: RlTask[..., str] = RlTask(lambda *_: None, TaskOptions("deploy.refund"))


def pushes(n: int) -> dict[str, Callable[[], tuple[str, str]]]:
    """Return, for each kind of producer, the id of the task and its expected result."""
    who, cents = f"cus_{n}", random.randrange(10_000)
    return {
        "old": lambda: (old_charge.push(who, cents / 100).id, f"{who} {cents} EUR"),
        "between": lambda: (mid_charge.push(who, cents).id, f"{who} {cents} EUR"),
        "new": lambda: (new_charge.push(who, cents, currency="USD").id, f"{who} {cents} USD"),
        "refund": lambda: (refund.push(who).id, f"{who} back"),
    }


class Staff:
    """The workers, some of them with old code, which are killed at random."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._alive: list[tuple[str, Member]] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._killer = threading.Thread(target=self._kill, daemon=True)
        self.share_new = 0.0
        self.kills = {OLD: 0, NEW: 0}

    def start(self, module: str) -> None:
        member = self._fleet.start("worker", module, "--concurrency", "10")
        with self._lock:
            self._alive.append((module, member))

    def begin_killing(self) -> None:
        self._killer.start()

    def _kill(self) -> None:
        while not self._over.wait(random.uniform(0.3, 1.0)):
            with self._lock:
                module, member = self._alive.pop(random.randrange(len(self._alive)))
            member.kill_all()
            self.kills[module] += 1
            self.start(NEW if random.random() < self.share_new else OLD)

    def finish(self) -> None:
        """End the deploy: shut down the old workers as a deploy does, and let the new ones continue alone."""
        self._over.set()
        self._killer.join()
        for module, member in self._alive:
            if module == OLD:
                member.terminate()
        self.start(NEW)


def main() -> None:
    short = quick()
    seconds, rate = (12, 100) if short else (90, 120)
    wanted: dict[str, str] = {}
    with a_fleet(LEASE_S) as fleet:
        staff = Staff(fleet)
        for _ in range(3):
            staff.start(OLD)
        staff.begin_killing()
        checks: list[Member] = []
        began = time.monotonic()
        while (share := (time.monotonic() - began) / seconds) < 1:
            staff.share_new = share  # workers are replaced first, then the producers, as in a real deploy
            producers = (
                ["old"] if share < 0.2 else ["old", "between", "new", "refund"] if share < 0.8 else ["new", "refund"]
            )
            for n in range(rate // 10):
                task_id, result = pushes(n)[random.choice(producers)]()
                wanted[task_id] = result
            if share > 0.5 and not checks:
                checks = [fleet.start("schema", "check", module) for module in (OLD, NEW)]
            time.sleep(0.1)
        staff.finish()
        tasks = fleet.wait_ended(wanted, 120)
        ran = [line.split()[1:] for line in (fleet.folder / "guards").read_text().splitlines()]
        old_fit, new_fit = (check.wait() for check in checks)
        counts = fleet.stats().counts
    done = [task for task in tasks if task.record.state is State.DONE]
    results = {task.record.id: (task.result or b"").decode().strip('"') for task in done}
    kills = sum(staff.kills.values())
    table = Table(
        f"{len(wanted):,} tasks in {seconds} s, {staff.kills[OLD]} old and {staff.kills[NEW]} new workers killed"
    )
    table.line("workers killed at random moments", kills, "", "≥ 10", kills >= 10)
    table.line("runs by old code", sum(code == "1" for _, code, _ in ran))
    table.line("runs by new code of payloads it had to migrate", sum(c == "3" and p != "3" for _, c, p in ran))
    table.line("put back for other workers, or revived", counts.get("retried", 0) + counts.get("revived", 0))
    table.exactly("tasks lost", len(wanted) - len(tasks), 0)
    table.exactly("tasks not done", len(tasks) - len(done), 0)
    table.exactly("runs by the wrong code", sum(int(payload) > int(code) for _, code, payload in ran), 0)
    table.exactly("results that are not what was asked for", sum(results.get(i) != r for i, r in wanted.items()), 0)
    table.exactly("rl schema check of the new code, halfway: exit code", new_fit, 0)
    table.exactly("rl schema check of the old code, halfway: exit code", old_fit, 1)
    leave(table)


if __name__ == "__main__":
    main()
