"""Batches whose workers are killed at random. The ledger must show each callback once and no stuck batch.

    python -m bench.batches [--quick]

many    10,000 batches of 10, some with a member that fails, while 300 worker processes are killed with SIGKILL
large   one batch of 100,000 members: how long it takes to push, to run, and to call back
cancel  a batch of 2,000 is cancelled half-way: no further member starts, and only on_complete is called
cost    submit, claim and commit of members of batches of 10, compared with tasks without a batch
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from msgspec import structs

from bench import batch_jobs as jobs
from bench.costs import BARE, compare_lives
from bench.fleets import Table, a_fleet, leave, quick
from bench.ledger import Bench
from relier import SyncWorkflowReceipt, batch
from relier.ledger.batches.membership import BatchHeader
from relier.ledger.batches.membership import Member as Place
from relier.ledger.batches.records import BatchRecord, BatchState
from relier.ledger.records import Submission, new_task_id
from relier.states import State
from tests.support.fleet import Fleet, Member

LEASE_S = 2.0
WORKERS = 3
SIZE = 10
ONE_FAILS_IN = 50
MODULE = jobs.__name__


class Crew:
    """The workers, and the replacements for killed ones."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.members: list[Member] = [self.start() for _ in range(WORKERS)]
        self.kills = 0

    def start(self) -> Member:
        return self._fleet.start("worker", MODULE, "--concurrency", "100")

    def kill_one(self) -> None:
        victim = random.choice(self.members)
        if not victim.boots():
            return
        victim.kill_all()
        self.kills += 1
        self.members[self.members.index(victim)] = self.start()

    def leave(self) -> None:
        for each in self.members:
            each.terminate()


def pushed(batches: int) -> Iterator[SyncWorkflowReceipt[None]]:
    for number in range(batches):
        bad = random.randrange(SIZE) if number % ONE_FAILS_IN == 0 else -1
        members = [jobs.member.s(n, n == bad) for n in range(SIZE)]
        yield batch(
            members,
            then=jobs.succeeded.si(number),
            on_failure=jobs.failed.si(number),
            on_complete=jobs.completed.si(number),
        ).push()


def wait_for(what: str, reached: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > until:
            raise SystemExit(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(0.2)


def records(fleet: Fleet) -> dict[str, BatchRecord]:
    found: dict[str, BatchRecord] = {}
    cursor: str | None = ""
    while cursor is not None:
        page = fleet.store.run(fleet.ledger.batches(cursor, most=500))
        found |= {each.id: each for each in page.batches}
        cursor = page.cursor
    return found


def many(fleet: Fleet, batches: int, kills: int) -> Table:
    table = Table(f"{batches:,} batches of {SIZE}, {kills} kills, lease {LEASE_S:g} s")
    crew, began = Crew(fleet), time.monotonic()
    ids: list[str] = []
    pushing: Iterator[SyncWorkflowReceipt[None]] | None = pushed(batches)
    pause = 0.0
    while crew.kills < kills or pushing is not None:
        if pushing is not None:
            for _ in range(max(1, batches // max(1, kills))):
                receipt = next(pushing, None)
                if receipt is None:
                    pushing = None
                    break
                ids.append(receipt.id)
        if crew.kills < kills and time.monotonic() > pause:
            crew.kill_one()
            pause = time.monotonic() + random.uniform(0.1, 0.5)
        elif pushing is None:
            time.sleep(0.05)
    wait_for("the end of all batches", lambda: fleet.stats().counts.get("submitted", 0) > 0 and idle(fleet), 900)
    table.line("from the first push to the end of the last task", time.monotonic() - began, "s")
    crew.leave()
    judge(table, fleet, ids, crew.kills, kills)
    return table


def idle(fleet: Fleet) -> bool:
    stats = fleet.stats()
    waiting = stats.scheduled + sum(queue.ready for queue in stats.queues)
    counts = stats.counts
    ended = sum(counts.get(state, 0) for state in ("done", "dead", "cancelled"))
    return waiting == 0 and counts.get("submitted", 0) == ended


def judge(table: Table, fleet: Fleet, ids: list[str], killed: int, kills: int) -> None:
    found = records(fleet)
    callbacks = Counter(name for each in found.values() for name in each.fired)
    whole = [each for each in found.values() if each.dead + each.cancelled == 0]
    counts = fleet.stats().counts
    ran = Counter(fleet.get(task).record.state for each in found.values() for task in each.callbacks.values())
    table.line("workers killed", killed, "", f"= {kills}", killed == kills)
    table.line("tasks revived", counts.get("revived", 0))
    table.exactly("batches", len(found), len(ids))
    table.exactly("batches that have not ended", sum(each.state is not BatchState.ENDED for each in found.values()), 0)
    table.exactly("counts that do not add up", sum(each.left != 0 or each.size != SIZE for each in found.values()), 0)
    table.exactly("`then` of batches that succeeded", callbacks["then"], len(whole))
    table.exactly(
        "`on_failure` of batches with a member that fails", callbacks["on_failure"], -(-len(ids) // ONE_FAILS_IN)
    )
    table.exactly("`on_complete`", callbacks["on_complete"], len(found))
    table.exactly("batches with the wrong callbacks", sum(wrongly(each) for each in found.values()), 0)
    table.exactly("callbacks done, one record each", ran[State.DONE], callbacks.total())
    table.exactly("tasks ever submitted", counts["submitted"], SIZE * len(ids) + callbacks.total())


def wrongly(each: BatchRecord) -> bool:
    right = {"on_complete", "then" if each.dead + each.cancelled == 0 else "on_failure"}
    return each.fired != right


def large(fleet: Fleet, size: int) -> Table:
    table = Table(f"one batch of {size:,}")
    before = fleet.stats().counts["submitted"]
    workers = [fleet.start("worker", MODULE, "--concurrency", "100") for _ in range(2)]
    for each in workers:
        each.wait_said(" started: queues=")
    began = time.monotonic()
    receipt = batch((jobs.member.s(n) for n in range(size)), then=jobs.succeeded.si(0)).push()
    table.line("pushed after", time.monotonic() - began, "s")
    wait_for("the end of the batch", lambda: receipt.progress().ended, 900)
    table.line("ended after", time.monotonic() - began, "s")
    wait_for("the callback", lambda: idle(fleet), 60)
    found = fleet.store.run(fleet.ledger.batch(receipt.id))
    table.exactly("members done", found.done, size)
    table.exactly("`then`", len(found.fired & {"then"}), 1)
    table.exactly("tasks submitted", fleet.stats().counts["submitted"] - before, size + 1)
    record = sum(len(str(value)) for value in fleet.store.command("HGETALL", fleet.ledger.prefix + "g:" + receipt.id))
    table.most("bytes of the batch's record", record, 1000)
    for each in workers:
        each.terminate()
    return table


def cancel(fleet: Fleet, size: int) -> Table:
    table = Table(f"cancel of a batch of {size:,}, half-way")
    workers = [fleet.start("worker", MODULE, "--concurrency", "50") for _ in range(2)]
    made = batch(
        (jobs.slow.s(n) for n in range(size)),
        then=jobs.succeeded.si(0),
        on_failure=jobs.failed.si(0),
        on_complete=jobs.completed.si(0),
    )
    receipt = made.push()
    wait_for("half of the batch", lambda: receipt.progress().done >= size // 2, 300)
    began = time.monotonic()
    receipt.cancel()
    table.line("cancel took", time.monotonic() - began, "s")
    wait_for("the end of the batch", lambda: receipt.progress().ended and idle(fleet), 60)
    table.line("and the batch ended after", time.monotonic() - began, "s")
    found = fleet.store.run(fleet.ledger.batch(receipt.id))
    table.line("members done", found.done)
    table.line("members cancelled", found.cancelled)
    table.exactly("members that ended", found.done + found.cancelled + found.dead, size)
    table.exactly("callbacks other than on_complete", len(found.fired - {"on_complete"}), 0)
    table.exactly("`on_complete`", len(found.fired), 1)
    for each in workers:
        each.terminate()
    return table


class MemberBench(Bench):
    """Measure the life of tasks that are members of batches of 10."""

    def submissions(self, n: int) -> list[Submission]:
        plain = super().submissions(n)
        batches = [plain[i : i + SIZE] for i in range(0, n, SIZE)]
        return [task for members in batches for task in in_one_batch(members)]


def in_one_batch(tasks: Sequence[Submission]) -> Iterator[Submission]:
    """Yield the tasks as the members of a new batch."""
    batch_id = new_task_id()
    for place, task in enumerate(tasks):
        opens = () if place else (BatchHeader(id=batch_id, name="batch"),)
        place_in_batch = Place(batch=batch_id, place=place, how="with" if place else "opens", opens=opens)
        yield structs.replace(task, member=place_in_batch)


def cost(rounds: int) -> Table:
    kinds = {BARE: Bench, f"in batches of {SIZE}": MemberBench}
    title = f"store time per task: members of batches of {SIZE}, beside tasks without a batch (least of several rounds)"
    return compare_lives(title, kinds, rounds, (SIZE, 100))


def main() -> None:
    small = quick()
    with a_fleet(LEASE_S) as fleet:
        tables = [cost(5 if small else 15), many(fleet, *((300, 10) if small else (10_000, 300)))]
        tables.append(large(fleet, 5_000 if small else 100_000))
        tables.append(cancel(fleet, 400 if small else 2_000))
    leave(*tables)


if __name__ == "__main__":
    main()
