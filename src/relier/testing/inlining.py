"""Run tasks at push, in this process and without a store: `with relier.testing.inline():`.

A retry follows at once, whatever its delay, and so does a delayed task. The receipt knows the state and the result, or
the error. Steps and checkpoints are kept between the attempts. Timeouts, limits and `expires` need a store.

A blocking push runs a `def` in the calling thread, so that it uses the database connection of the test. `apush` runs an
`async def` on the running loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from relier import background
from relier.errors import RelierError, TaskNotFoundError
from relier.failure import failure_of, write_failure
from relier.ledger.records import Accepted, Claimed, HistoryEntry, Locked, LockState, Submission, Task, Verdict
from relier.run.attempt import Attempt, open_attempt
from relier.run.execute import execute
from relier.run.outcome import Done, Failed, Outcome, PutBack, plan_of, reason_of
from relier.run.threads import Threads
from relier.states import State
from relier.store import Call
from relier.testing.calling_thread import run_here
from relier.testing.memory import MemoryChannel, TaskMemory, claimed_from
from relier.testing.storeless import Taker, no_store, pushing_to

MOST_ATTEMPTS = 100  # of one task: for example, one that waits for a lock which its own caller holds


@dataclass
class RunTask:
    """Hold a task that has run, and the key that duplicates are known by."""

    task: Task
    key: str


class InlineTasks(Taker):
    """Run pushed tasks at once, and keep their outcomes for the receipts."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._ran: dict[str, RunTask] = {}
        self._locks: dict[str, tuple[str, bytes | None]] = {}
        self._threads = Threads()

    def take(self, task: Submission) -> Accepted:
        known = self._known(task)
        return run_here(lambda threads: self._run(task, threads)) if known is None else known

    async def atake(self, task: Submission) -> Accepted:
        known = self._known(task)
        return (
            await background.start(asyncio.get_running_loop(), self._run(task, self._threads))
            if known is None
            else known
        )

    def close(self) -> None:
        self._threads.close()

    def _known(self, task: Submission) -> Accepted | None:
        """Return the answer to a push whose id or idempotency key has run before, as the ledger would."""
        same = self._ran.get(task.id)
        if same is not None:
            return Accepted("exists", task.id, same.task.record.state, 1)
        for each in self._ran.values():
            record = each.task.record
            if task.key and task.key == each.key and record.state is State.DONE and task.on_conflict == "return":
                return Accepted("duplicate", record.id, record.state, 1)
        return None

    async def _run(self, task: Submission, threads: Threads) -> Accepted:
        """Run the attempts of a task until it is done or dead."""
        memory, attempt, retries = TaskMemory(), 0, 0
        channel = MemoryChannel(self.client, memory, self._state)
        while True:
            attempt += 1
            claimed = claimed_from(task, memory, attempt, retries=retries)
            outcome, options = await _attempt(claimed, channel, threads)
            plan = plan_of(self.client.ledger, claimed, outcome, options, 0)
            if plan.call is None or plan.call.script != "retry" or attempt == MOST_ATTEMPTS:
                break
            retries += 1
        self._ran[task.id] = RunTask(_ended(claimed, outcome, memory), task.key)
        return Accepted("new", task.id, None, 1)

    def answer(self, call: Call[Any]) -> Any:
        match call.script, call.args:
            case "get", (str(task_id), *_):
                if task_id not in self._ran:
                    raise TaskNotFoundError(f"no task {task_id} was pushed inside this inline() block")
                return self._ran[task_id].task
            case "lock", (str(key), str(token), *_):
                holder, result = self._locks.setdefault(key, (token, None))
                if result is not None:
                    return Locked(LockState.COMPLETED, result=result)
                return Locked(LockState.CLAIMED if holder == token else LockState.IN_FLIGHT, holder=holder)
            case "conclude", (str(key), str(token), _, bytes(result)):
                self._locks[key] = (token, result)
                return Verdict.OK
            case "unlock", (str(key), *_):
                self._locks.pop(key, None)
                return Verdict.OK
            case "renew", _:
                return Verdict.OK
        raise no_store(call.script)


@contextmanager
def inline(*, state: Any = None) -> Iterator[None]:
    """Run every task that is pushed inside the block, at its push. Tasks that a task pushes run at their push, too.

    `state`: what `ctx.state` is. No lifespan is entered.
    """
    tasks = InlineTasks(state)
    try:
        with pushing_to(tasks):
            yield
    finally:
        tasks.close()


async def _attempt(claimed: Claimed, channel: MemoryChannel, threads: Threads) -> tuple[Outcome, Any]:
    """Run one attempt. Return its outcome and the task's retries. Raise if no imported module has the task."""
    opened = open_attempt(claimed, channel)
    if isinstance(opened, PutBack):
        raise opened.error
    if not isinstance(opened, Attempt):
        return opened, None
    channel.memory.lost = lambda: opened.ctx.lost
    opened.isolated = False
    return await execute(opened, threads, channel), opened.task.options.retries


def _ended(claimed: Claimed, outcome: Outcome, memory: TaskMemory) -> Task:
    """Return the task as its receipt reads it."""
    record, more = claimed.record, {"progress": memory.progress[-1]} if memory.progress else {}
    if isinstance(outcome, Done):
        done = replace(record, state=State.DONE, more=more)
        return Task(done, None, outcome.result, memory.checkpoint, memory.steps, ())
    error = outcome.error if isinstance(outcome, Failed) else RelierError(f"the attempt ended as {outcome!r:.100}")
    reason, detail = reason_of(Failed(error)), write_failure(failure_of(error))
    history = HistoryEntry("bury", 0, record.attempt, record.worker_id, record.fence, detail)
    dead = replace(record, state=State.DEAD, more=more | {"reason": reason})
    return Task(dead, claimed.payload, None, memory.checkpoint, memory.steps, (history,))
