"""kill -9 of relays at random moments: every committed row becomes one record, no rolled-back row any.

    python bench/outbox_chaos.py [--quick]

Three relays run; one of them is killed every now and then, and replaced. Orders are committed with their tasks all the
while, and every fifth transaction is rolled back. Batches are small, so that kills meet relays at every point.
"""

from __future__ import annotations

import random
import threading
import time

from fleets import Table, leave, quick
from outbox_desk import Desk, a_desk, a_postgres

from relier.errors import TaskNotFoundError
from servers import wait_until

RELAYS = 3
AT_ONCE = 10


class Killer(threading.Thread):
    """Kills a relay now and then, and starts another."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(daemon=True)
        self._desk = desk
        self._relays = [self._relay() for _ in range(RELAYS)]
        self._over = threading.Event()
        self.kills = 0

    def _relay(self):
        return self._desk.relay("--batch-size", "20", "--idle-time", "0.2", "--log-level", "warning")

    def run(self) -> None:
        while not self._over.wait(random.uniform(0.1, 0.9)):
            victim = self._relays.pop(random.randrange(RELAYS))
            victim.kill()
            victim.wait()
            self._relays.append(self._relay())
            self.kills += 1

    def end(self) -> None:
        self._over.set()
        self.join()


def main() -> None:
    short = quick()
    wanted, kills = (1_000, 10) if short else (20_000, 200)
    with a_postgres() as postgres, a_desk(postgres) as desk:
        killer = Killer(desk)
        killer.start()
        committed, rolled_back, order = [], [], 0
        began = time.monotonic()
        while len(committed) < wanted or killer.kills < kills:
            if len(committed) < wanted:
                keep = random.random() >= 0.2
                (committed if keep else rolled_back).extend(desk.push(order, AT_ONCE, commit=keep))
                order += AT_ONCE
            share = killer.kills / kills
            if len(committed) >= wanted * min(1.0, share + 0.02):  # spread the rows over the kills
                time.sleep(0.01)
        wait_until(lambda: desk.rows() == 0, 60, "the end of all rows")
        killer.end()
        desk.end()
        table = Table(f"{len(committed):,} committed rows, {killer.kills} kills, {time.monotonic() - began:.0f} s")
        table.line("kill -9 of a relay", killer.kills, "", f"≥ {kills}", killer.kills >= kills)
        table.exactly("committed rows without a record", missing(desk, committed), 0)
        table.exactly("records of rolled-back rows", len(rolled_back) - missing(desk, rolled_back), 0)
        table.exactly("records made", desk.submitted(), len(committed))
        table.line("rolled-back rows", len(rolled_back))
        leave(table)


def missing(desk: Desk, ids: list[str]) -> int:
    answers = desk.client.sync_store.run_many(desk.client.ledger.get(one) for one in ids)
    return sum(isinstance(answer, TaskNotFoundError) for answer in answers)


if __name__ == "__main__":
    main()
