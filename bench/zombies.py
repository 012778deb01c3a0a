"""Late commits of frozen workers: SIGSTOP beyond the lease, another worker takes over, SIGCONT. None may be accepted.

    python -m bench.zombies [--quick]

The frozen attempts are first attempts that ignore their cancellation, so each really tries to commit while the second
attempt runs.
"""

from __future__ import annotations

import signal

from bench.fleets import Table, a_fleet, leave, quick
from tests.support.jobs import common as jobs

LEASE_S = 2.0


def main() -> None:
    tasks = 10 if quick() else 50
    with a_fleet(LEASE_S) as fleet:
        zombie = fleet.worker()
        ids = [receipt.id for receipt in jobs.stubborn.push_many([("go",)] * tasks)]
        fleet.wait_diary("begin", tasks)
        zombie.signal(signal.SIGSTOP)
        fleet.worker()
        fleet.wait_diary("begin", 2 * tasks)
        fleet.open_gate("go1")
        zombie.signal(signal.SIGCONT)
        told = zombie.wait_said("zombie commit rejected", tasks)
        running = sum(fleet.get(task_id).record.state == "running" for task_id in ids)
        fleet.open_gate("go2")
        results = [task.result for task in fleet.wait_done(ids)]
        table = Table(f"{tasks} tasks on a worker that was stopped for longer than its lease of {LEASE_S:g} s")
        late = [line for line in fleet.diary("end") if line.attempt == 1]
        table.exactly("first attempts that came to an end late", len(late), tasks)
        table.exactly("late commits accepted", results.count(b"1"), 0)
        table.exactly("late commits refused, by the ledger's count", fleet.stats().counts["refused"], tasks)
        table.exactly("late commits refused, by the worker's log", told.count("zombie commit rejected"), tasks)
        table.exactly("tasks that still ran elsewhere meanwhile", running, tasks)
        table.exactly("tasks whose second attempt's result stands", results.count(b"2"), tasks)
        table.exactly("commits", fleet.stats().counts["done"], tasks)
    leave(table)


if __name__ == "__main__":
    main()
