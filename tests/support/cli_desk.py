"""Short forms of the ledger's moves, for tests of the commands."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from click.testing import Result

from relier.envelope import seal
from relier.failure import failure_of, write_failure
from relier.ledger import keys
from relier.ledger.ledger import Ledger
from relier.ledger.records import Claimed, Lease, Submission, Task, new_task_id, new_worker_id
from relier.settings import Settings
from relier.store import SyncStore

Run = Callable[..., Result]  # the fixtures `run` and `run_json`
RunJson = Callable[..., Any]
LEASE_MS = 600_000  # no heartbeats are sent here


def body(*args: Any, **kwargs: Any) -> bytes:
    return seal(json.dumps([args, kwargs]).encode(), schema_version=2, pushed_ms=1_700_000_000_000, trace="00-a-b-01")


def failure(message: str = "no such customer") -> str:
    """Return what a worker stores about an exception."""
    error = ValueError(message)
    try:
        raise error
    except ValueError:
        return write_failure(failure_of(error))


class Desk:
    """One namespace, with one worker whose id is `boot`."""

    def __init__(self, store: SyncStore, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.ledger = Ledger(settings)
        self._seq = itertools.count(1)
        self.store.run(self.ledger.open())
        self.boot = self.join(host="web1", pid=4242, queues=["default"], concurrency=4, version="0.1.0")

    @staticmethod
    def prefix_of(settings: Settings) -> str:
        return Ledger(settings).prefix

    def run(self, call: Any) -> Any:
        return self.store.run(call)

    def command(self, *args: Any) -> Any:
        return self.store.command(*args)

    def key(self, name: str, of: str = "") -> str:
        return keys.spell(self.ledger.prefix, name, of)

    def join(self, **about: Any) -> str:
        boot = new_worker_id()
        assert self.run(self.ledger.register(boot, LEASE_MS, json.dumps(about)))
        return boot

    def push(self, **fields: Any) -> str:
        plain = {"id": new_task_id(), "name": "shop.charge", "payload": body("cus_1", 5000)} | fields
        (answer,) = self.run(self.ledger.submit([Submission(**plain)]))
        assert answer.status == "new", answer
        return str(plain["id"])

    def claim(self, queue: str = "default", boot: str = "") -> Claimed:
        claim = self.run(self.ledger.claim(boot or self.boot, next(self._seq), [queue], 1))
        (task,) = claim.tasks
        assert isinstance(task, Claimed)
        return task

    def start(self, **fields: Any) -> Lease:
        task = self.push(**fields)
        claimed = self.claim(fields.get("queue", "default"))
        assert claimed.lease.task_id == task
        return claimed.lease

    def done(self, result: bytes | None = b"1", **fields: Any) -> str:
        lease = self.start(**fields)
        self.run(self.ledger.commit([(lease, result, ())]))
        return lease.task_id

    def dead(self, reason: str = "ValueError", detail: str | None = None, **fields: Any) -> str:
        lease = self.start(**fields)
        self.run(self.ledger.bury(lease, reason, failure() if detail is None else detail))
        return lease.task_id

    def cancelled(self, **fields: Any) -> str:
        task = self.push(**fields)
        self.run(self.ledger.cancel(task, self.version(task)))
        return task

    def get(self, task: str) -> Task:
        found = self.run(self.ledger.get(task))
        assert isinstance(found, Task)
        return found

    def version(self, task: str) -> int:
        return self.get(task).record.version

    def replay(self, task: str) -> None:
        self.run(self.ledger.replay(task, self.version(task), new_task_id()))

    def one_of_each(self) -> dict[str, str]:
        """Create a task in each state. Return state -> id."""
        found = {"done": self.done(), "dead": self.dead(), "cancelled": self.cancelled()}
        found["running"] = self.start().task_id
        found["scheduled"] = self.push(delay_ms=3_599_000)  # less than an hour, even at once
        found["queued"] = self.push()
        return found


def hide_all(name: str, value: Any) -> Any:
    return "(hidden)"
