"""A namespace with very many tasks, queues, nodes, limits, schedules and batches, made by the moves of the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from relier import rl_task
from relier.errors import RelierError
from relier.ledger.batches.membership import BatchHeader
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.records import Submission, new_task_id, new_worker_id
from relier.ledger.schedule_records import NEW
from relier.schedules.api import Schedules
from relier.store.call import Call
from relier.submit.client import Client
from tests.support.cli_desk import LEASE_MS, Desk, body

TRIES = 10
NAMES = tuple(f"shop.task_{n}" for n in range(12))


@rl_task(name="crowd.nightly")
def nightly() -> None: ...


@dataclass(frozen=True, slots=True)
class CrowdSize:
    """How many there are of each. A tenth of the tasks is dead, done and scheduled each; the others wait in queues."""

    tasks: int
    queues: int
    nodes: int = 150
    limits: int = 500
    schedules: int = 300
    batches: int = 120


BIG = CrowdSize(1_000_000, 5_000, nodes=500, limits=5_000, schedules=2_000, batches=500)


def crowd(desk: Desk, size: CrowdSize) -> dict[str, str]:
    """Create everything, and return the ids of a dead, a waiting and a limited task, and of a batch."""
    tenth = size.tasks // 10
    queues = [f"queue-{n:05d}" for n in range(size.queues)]
    for n in range(size.nodes):
        desk.join(host=f"host-{n}", pid=n + 1, queues=queues[n :: size.nodes][:50], concurrency=50, version="1.0.0")
    dead, done = (_ended(desk, tenth, ending) for ending in ("dead", "done"))
    _submit(desk, (_task(n, "default", delay_ms=3_600_000 + n) for n in range(tenth)))
    limited = _limited(desk, size.limits, queues)
    waiting = _submit(desk, (_task(n, queues[n % size.queues]) for n in range(size.tasks - 3 * tenth)))
    _schedules(desk, size.schedules)
    for n in range(size.batches):
        header = BatchHeader(id=f"batch-{n:05d}", name=f"import {n}", open=True, lease_ms=LEASE_MS)
        desk.run(desk.ledger.open_batch(header))
    return {"dead": dead, "done": done, "queued": waiting, "limited": limited, "batch": "batch-00000"}


def _task(n: int, queue: str, **fields: object) -> Submission:
    plain = {"id": new_task_id(), "name": NAMES[n % len(NAMES)], "queue": queue, "payload": PAYLOAD}
    return Submission(**plain | fields)


PAYLOAD = body("cus_1", 5000)


def _submit(desk: Desk, tasks: Iterator[Submission]) -> str:
    """Submit all tasks, a hundred to a script. Return the id of the last one."""
    last = ""
    while some := list(islice(tasks, 20_000)):
        last = some[-1].id
        _run_all(desk, [desk.ledger.submit(chunk) for chunk in desk.ledger.chunks(some)])
    return last


def _run_all(desk: Desk, calls: list[Call[Any]]) -> None:
    """Run calls until each has its answer: a busy machine may take longer than the store's deadline."""
    for _ in range(TRIES):
        answers = desk.store.run_many(calls)
        calls = [call for call, answer in zip(calls, answers, strict=True) if isinstance(answer, RelierError)]
        if not calls:
            return
    raise AssertionError(f"{len(calls)} calls failed")


def _ended(desk: Desk, count: int, ending: str) -> str:
    """End this many tasks. Return the id of the last one."""
    worker, last = new_worker_id(), ""
    desk.run(desk.ledger.register(worker, LEASE_MS, json.dumps({"queues": ["ends"]})))
    for seq in range(1, -(-count // 100) + 1):
        _submit(desk, (_task(n, "ends") for n in range(min(100, count - 100 * (seq - 1)))))
        leases = [task.lease for task in desk.run(desk.ledger.claim(worker, seq, ["ends"], 100)).tasks]
        last = leases[-1].task_id
        if ending == "done":
            desk.run(desk.ledger.commit([(lease, b"1", ()) for lease in leases]))
        else:
            detail = json.dumps({"type": "ValueError", "message": "no such customer"})
            _run_all(desk, [desk.ledger.bury(lease, f"Error{seq % 7}", detail) for lease in leases])
    return last


def _limited(desk: Desk, count: int, queues: list[str]) -> str:
    """Submit two tasks under each limit key, which allows one at once: half of them wait behind the others."""

    def tasks() -> Iterator[Submission]:
        for n in range(2 * count):
            key = f"tenant:{n % count}"
            limits = (RunLimit("tenant:{id}", key, LimitNumbers(1)),)
            yield _task(n, queues[n % len(queues)], limits=limits)

    return _submit(desk, tasks())


def _schedules(desk: Desk, count: int) -> None:
    client = Client(desk.settings)
    try:
        schedules = Schedules(client)
        schedules.create("nightly-00000", nightly, cron="0 3 * * *")
        (stored,) = desk.run(desk.ledger.schedules("nightly-00000")).schedules
        names = (f"nightly-{n:05d}" for n in range(1, count))
        _run_all(desk, [desk.ledger.schedule(name, NEW, stored.definition, stored.next_ms) for name in names])
    finally:
        client.close()
