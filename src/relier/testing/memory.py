"""Keep what a task records in memory, for contexts and attempts without a store."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from relier.errors import ConfigurationError
from relier.ledger.records import Claimed, Lease, Record, Recorded, Settled, Spec, Submission, Verdict
from relier.run.channel import LedgerChannel
from relier.states import State
from relier.store.call import Call
from relier.submit.client import Client

T = TypeVar("T")
OK = Settled(Verdict.OK, State.RUNNING, "1")
STALE = Settled(Verdict.STALE, State.RUNNING, "2")


@dataclass
class TaskMemory:
    """Hold what the attempts of one task recorded, as bytes: steps by name, the checkpoint, and progress reports.

    `lost` returns whether the attempt has lost its lease. Then nothing more is recorded.
    """

    steps: dict[str, bytes] = field(default_factory=dict)
    checkpoint: bytes | None = None
    progress: list[str] = field(default_factory=list)
    lost: Callable[[], bool] = lambda: False

    def answer(self, call: Call[Any]) -> Any:
        """Do what the ledger does for a running task, and return its answer."""
        settled = STALE if self.lost() else OK
        match call.script, call.args:
            case "step", (_, _, _, str(name), bytes(entry), *_):
                return Recorded(settled, None if self.lost() else self.steps.setdefault(name, entry))
            case "checkpoint", (_, _, _, _, bytes(value), *_):
                self.checkpoint = self.checkpoint if self.lost() else value
                return settled
            case "progress", (_, _, _, bytes(text), *_):
                self.progress.append(text.decode())
                return settled
        raise ConfigurationError(
            f"this test has no store, but the task needs one for {call.script!r}; use the fixture `relier_store`, or "
            f"`with relier.testing.store():`"
        )


class MemoryChannel(LedgerChannel):
    """Let attempts record in memory what they would record in the ledger. Nothing waits, and no loop is needed."""

    def __init__(
        self,
        client: Client,
        memory: TaskMemory,
        state: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings, self.keyring, self.ledger = client.settings, client.keyring, client.ledger
        self.memory = memory
        self.state = state
        self.clock = clock

    def born(self, lost: Callable[[], bool]) -> str:  # noqa: ARG002 - the contract of a channel
        return ""

    async def in_own_thread(self, work: Callable[..., T], *args: Any) -> T:
        return work(*args)

    async def arun(self, call: Call[T]) -> T:
        return self.run(call)

    def run(self, call: Call[T]) -> T:
        answer: T = self.memory.answer(call)
        return answer

    def post(self, call: Call[Any]) -> None:
        self.run(call)


def claimed_from(
    task: Submission,
    memory: TaskMemory,
    attempt: int = 1,
    lease: Lease | None = None,
    retries: int = 0,
    deaths: int = 0,
) -> Claimed:
    """Return an attempt of a submission, with what earlier ones recorded."""
    spec = Spec(0, task.priority, None, None, None, None, None, None, None, task.on_lost, task.durability)
    lease = lease or Lease(task.id, str(attempt), "test")
    owner = lease.fence, lease.worker_id
    record = Record(task.id, State.RUNNING, attempt, *owner, attempt, "", 0, spec, task.queue, task.name)
    return Claimed(lease, record, task.payload, memory.checkpoint, dict(memory.steps), retries, deaths)
