"""Many producers push the same idempotency keys while processes are killed: each key commits once, and none stays
blocked.

    python -m bench.storms [--quick]

Five producer processes push the same keys at the same moments. Meanwhile workers and producers are killed (kill -9) and
replaced. A restarted producer repeats each push for which it noted no answer. Every tenth key fails if one of two
producers wins it, which frees the key for the next push. At the end each key is pushed once more. A committed key must
answer with the result of its commit, and a free key must run.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict

from bench import guard_jobs as jobs
from bench import storm_pusher
from bench.fleets import Table, a_fleet, leave, quick
from relier.states import LIVE, State
from tests.support.fleet import Fleet, Member, wait_until

LEASE_S = 1.0
PRODUCERS, WORKERS = 5, 3
PRODUCERS_KILLED = 0.25  # this share of all kills
MODULE = jobs.__name__


class Storm(threading.Thread):
    """The producers and workers, which are killed at random."""

    def __init__(self, fleet: Fleet, keys: int, seconds: float) -> None:
        super().__init__(daemon=True)
        self._fleet = fleet
        self._keys = keys
        self._seconds = seconds
        self._over = threading.Event()
        self._workers = [fleet.worker("--concurrency", "20", modules=[MODULE]) for _ in range(WORKERS)]
        self._begun = time.monotonic() + 1
        self._producers = {who: self._producer(who) for who in range(PRODUCERS)}
        self.kills: Counter[str] = Counter()

    def _producer(self, who: int) -> Member:
        told = [str(who), str(self._keys), str(self._begun), str(self._seconds)]
        return self._fleet.python("-m", "bench.storm_pusher", *told, RELIER_ADMISSION_LIMIT="0")

    def run(self) -> None:
        while not self._over.wait(random.uniform(0.3, 1.0)):
            pushing = [who for who, member in self._producers.items() if member.process.poll() is None]
            if pushing and random.random() < PRODUCERS_KILLED:
                who = random.choice(pushing)
                self._producers[who].kill_all()
                self._producers[who] = self._producer(who)
                self.kills["producers"] += 1
            else:
                self._workers.pop(random.randrange(WORKERS)).kill_all()
                self._workers.append(self._fleet.start("worker", MODULE, "--concurrency", "20"))
                self.kills["workers"] += 1

    def wait(self) -> None:
        """Wait until everything was pushed, and nothing is left to do."""
        wait_until(self._all_pushed, self._seconds + 120, "the end of all pushes")
        wait_until(self._all_ended, 300, "the end of all tasks")
        self._over.set()
        self.join()

    def _all_pushed(self) -> bool:
        files = [storm_pusher.answers(who) for who in range(PRODUCERS)]
        return all(file.exists() and file.read_bytes().count(b"\n") == self._keys for file in files)

    def _all_ended(self) -> bool:
        left = self._fleet.stats().by_state()
        return not any(left[state] for state in LIVE)  # a suspect that found no free isolated process is scheduled

    def answers(self) -> list[tuple[int, str, bool]]:
        """Return key, task, and whether the task was another producer's."""
        told = [storm_pusher.answers(who).read_text().splitlines() for who in range(PRODUCERS)]
        return [(int(k), task, d == "1") for lines in told for k, task, d in map(str.split, lines)]


def runs() -> list[tuple[int, str]]:
    """Return the key and the task of every run that started."""
    lines = (jobs.FOLDER / "guards").read_text().splitlines()
    return [(int(key), task) for _, key, task in map(str.split, lines)]


def done_by_key(fleet: Fleet, ids: dict[int, set[str]]) -> dict[int, list[str]]:
    """Return key -> its done tasks. The diary lists every task that has run, so also every done task, even if the
    answer to its push was lost.
    """
    found = {key: [task for task in some if fleet.get(task).record.state is State.DONE] for key, some in ids.items()}
    return {key: some for key, some in found.items() if some}


def push_again(fleet: Fleet, keys: int, done: dict[int, list[str]]) -> tuple[int, int, int]:
    """Push each key once more. Return the keys that are blocked, those with a wrong answer, and those that were free
    and ran."""
    receipts = dict(enumerate(jobs.once.push_many([(key, PRODUCERS) for key in range(keys)])))
    blocked = [key for key, receipt in receipts.items() if receipt.duplicate != (key in done)]
    free = [receipt.id for receipt in receipts.values() if not receipt.duplicate]
    fleet.wait_done(free, 60)
    wrong = sum(receipt.result(5) != key for key, receipt in receipts.items())
    wrong += sum(receipts[key].id not in some for key, some in done.items())
    return len(blocked), wrong, len(free)


def main() -> None:
    short = quick()
    keys, seconds = (1_000, 10) if short else (10_000, 75)
    with a_fleet(LEASE_S) as fleet:
        jobs.FOLDER = fleet.folder
        storm = Storm(fleet, keys, seconds)
        storm.start()
        storm.wait()
        answers, ran, before = storm.answers(), runs(), fleet.stats().counts
        ids: dict[int, set[str]] = defaultdict(set)
        for key, task in [*ran, *((key, task) for key, task, _ in answers)]:
            ids[key].add(task)
        done = done_by_key(fleet, ids)
        blocked, wrong, free = push_again(fleet, keys, done)
        after = fleet.stats().counts
    tasks = sum(map(len, ids.values()))
    table = Table(f"{keys:,} keys, each pushed at once by {PRODUCERS} processes, over {seconds} s, lease {LEASE_S:g} s")
    for whom, least in (("workers", 5 if short else 50), ("producers", 1 if short else 10)):
        table.line(f"{whom} killed at random moments", storm.kills[whom], "", f"≥ {least}", storm.kills[whom] >= least)
    table.line("tasks revived", before.get("revived", 0), "", "≥ 1", before.get("revived", 0) >= 1)
    table.line("runs that began twice or more: killed in the middle", len(ran) - len({task for _, task in ran}))
    table.line("pushes answered", len(answers))
    table.line("pushes answered with another's task", sum(duplicate for _, _, duplicate in answers))
    lost = keys - len({key for key, _, duplicate in answers if not duplicate})
    table.line("keys whose first answer died with its producer", lost)
    table.line("tasks that failed and freed their key", before.get("dead", 0))
    table.exactly("tasks that two keys share", tasks - len({task for some in ids.values() for task in some}), 0)
    table.exactly("keys with more than one commit", sum(len(some) > 1 for some in done.values()), 0)
    table.exactly("commits beyond one a key, by the ledger's count", before["done"] - len(done), 0)
    table.exactly("keys left blocked: neither committed nor free", blocked, 0)
    table.exactly("keys whose next push has another result", wrong, 0)
    table.line("keys that were free at the end, and then ran", free)
    table.exactly("commits in the end, one for each key", after["done"], keys)
    leave(table)


if __name__ == "__main__":
    main()
