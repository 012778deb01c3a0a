"""Relays are killed with SIGKILL at random moments: each committed row becomes one record, and no rolled-back row does.

    python -m bench.outbox_chaos [--quick] [--database mariadb] [--ordered] [--repeatable-read]

Three relays run; one of them is killed every now and then, and replaced. Meanwhile orders are committed with their
tasks, and every fifth transaction is rolled back. Batches are small, so that kills hit relays at every point. With
`--ordered`, rows have order keys, and the records of a key must appear in the order of its rows.
"""

from __future__ import annotations

import random
import threading
import time

from sqlalchemy.exc import DBAPIError

from bench.fleets import Table, leave
from bench.outbox_desk import KEYS, REPEATABLE_READ, Desk, a_desk, a_server, key_of, modes
from relier.errors import RelierError, TaskNotFoundError
from tests.support.servers import wait_until

RELAYS = 3
AT_ONCE = 10


class Killer(threading.Thread):
    """Kill a relay at intervals, and start another."""

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
    mode = modes()
    wanted, kills = (1_000, 10) if mode.quick else (20_000, 200)
    isolation = REPEATABLE_READ if mode.repeatable_read else None
    keys = KEYS if mode.ordered else 0
    with a_server(mode.database) as server, a_desk(server, isolation=isolation, keys=keys) as desk:
        killer = Killer(desk)
        killer.start()
        committed: list[str] = []
        rolled_back: list[str] = []
        placed: dict[str, int] = {}
        order, failed = 0, 0
        began = time.monotonic()
        while len(committed) < wanted or killer.kills < kills:
            if len(committed) < wanted:
                keep = random.random() >= 0.2
                try:
                    ids = desk.push(order, AT_ONCE, commit=keep)
                    (committed if keep else rolled_back).extend(ids)
                    placed |= {one: order + n for n, one in enumerate(ids)}
                except DBAPIError:
                    failed += 1
                order += AT_ONCE
            share = killer.kills / kills
            if len(committed) >= wanted * min(1.0, share + 0.02):  # spread the rows over the kills
                time.sleep(0.01)
        killer.end()  # on a busy machine, a relay would not live long enough to start
        wait_until(lambda: desk.rows() == 0, 120, "the end of all rows")
        desk.end()
        table = Table(f"{len(committed):,} committed rows, {killer.kills} kills, {time.monotonic() - began:.0f} s")
        table.line("kill -9 of a relay", killer.kills, "", f"≥ {kills}", killer.kills >= kills)
        table.exactly("committed rows without a record", missing(desk, committed), 0)
        table.exactly("records of rolled-back rows", len(rolled_back) - missing(desk, rolled_back), 0)
        table.exactly("records made", desk.submitted(), len(committed))
        table.exactly("transactions that failed", failed, 0)
        if keys:
            table.exactly("records before one of the same key that was pushed earlier", overtakes(desk, placed), 0)
        table.line("rolled-back rows", len(rolled_back))
        leave(table)


def overtakes(desk: Desk, placed: dict[str, int]) -> int:
    """Return the records that overtook a record of the same key whose order was placed earlier."""
    records = desk.client.sync_store.run_many(desk.client.ledger.get(one) for one in placed)
    last: dict[str, int] = {}
    found = 0
    for answer, order in zip(records, placed.values(), strict=True):
        if not isinstance(answer, RelierError):
            key, came = key_of(order, desk.keys), answer.record.spec.at_us
            found += came < last.get(key, 0)
            last[key] = max(came, last.get(key, 0))
    return found


def missing(desk: Desk, ids: list[str]) -> int:
    answers = desk.client.sync_store.run_many(desk.client.ledger.get(one) for one in ids)
    return sum(isinstance(answer, TaskNotFoundError) for answer in answers)


if __name__ == "__main__":
    main()
