"""Define receipts: what a caller gets from a push, to ask about the task. Awaiting and blocking receipts do the same.

The code is written once, as coroutines in Receipt (submit/ledger_access.py says how blocking callers run them). A
receipt can be rebuilt from an id alone, in another process, much later. Then it does not know the task's return type:
models come back as plain objects of their fields.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Generic, TypeVar

from relier import codec
from relier.errors import (
    ConfigurationError,
    HardTimeoutError,
    MaxResurrectionsExceededError,
    RelierError,
    ResultTimeoutError,
    StoreEmptiedError,
    StoreSetupError,
    StoreUnavailableError,
    TaskCancelledError,
    TaskDeadError,
    TaskNotFoundError,
    VersionConflictError,
)
from relier.failure import Failure, read_failure
from relier.ledger.records import Record, Task, new_task_id
from relier.ledger.stats import Stats
from relier.states import ENDED, State
from relier.store.call import Call, Durability
from relier.store.sync_wire import run_sync
from relier.submit.client import Client, default_client, place_of
from relier.submit.ledger_access import LedgerAccess
from relier.submit.progress import TaskProgress, read_progress

R = TypeVar("R")
log = logging.getLogger("relier.submit")
FIRST_POLL_S, SLOWEST_POLL_S = 0.005, 0.25


class TaskState(StrEnum):
    """List the states of a receipt's task. `expired`: the task was accepted, and its record is past its retention."""

    NOT_FOUND = "not-found"
    EXPIRED = "expired"
    QUEUED = "queued"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Receipt(Generic[R]):
    """Hold a task's id and ask the ledger about the task."""

    def __init__(
        self,
        id: str,  # noqa: A002 - the word users know
        *,
        duplicate: bool = False,
        durability: Durability | None = None,
        read_result: Callable[[bytes | None], Any] | None = None,
        client: Client | None = None,
        born: str = "",
    ) -> None:
        if not isinstance(id, str) or not id:
            raise ConfigurationError(f"a receipt needs the id of a task, as returned by a push, not {id!r:.60}")
        self.id = id
        self.duplicate = duplicate
        self.durability = durability  # None: the maker of this receipt does not know whether the task was accepted
        self._read = read_result or _read_plainly
        self._client = (client or default_client()).of(id)
        self._born = born  # the birth mark of the store that accepted the task; "": not known

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}{', duplicate=True' if self.duplicate else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Receipt) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # --- for both kinds of callers -------------------------------------------------------------------------------

    def _get(self) -> Call[Task]:
        return self._client.ledger.get(self.id, self._born)

    async def _state(self, ledger: LedgerAccess[Any]) -> TaskState:
        try:
            return TaskState((await ledger.run(self._get())).record.state)
        except TaskNotFoundError as error:
            return self._state_of_missing(error)

    async def _progress(self, ledger: LedgerAccess[Any]) -> TaskProgress | None:
        try:
            return read_progress((await ledger.run(self._get())).record.progress)
        except TaskNotFoundError as error:
            self._state_of_missing(error)  # raises if the store was emptied
            return None

    async def _end(self, ledger: LedgerAccess[Any], timeout: float | None) -> Task:  # noqa: ASYNC109 - see `result`
        """Return the task once it has ended."""
        poll = PollSchedule(timeout, seen=self._client.namespace.opened)
        while True:
            try:
                task = await ledger.run(self._get(), poll.longest)
            except (TaskNotFoundError, StoreUnavailableError) as error:
                await ledger.calls.sleep(self._pause_after(poll, error))
                continue
            poll.reached()
            if task.record.state in ENDED:
                return task
            pause = poll.pause()
            if pause is None:
                raise await self._too_late(ledger, poll.waited, task.record)
            await ledger.calls.sleep(pause)

    async def _cancel(self, ledger: LedgerAccess[Any]) -> bool:
        while True:
            task = await ledger.run(self._get())
            if task.record.state in ENDED:
                return task.record.state is State.CANCELLED
            try:
                await ledger.run(self._client.ledger.cancel(self.id, task.record.version))
            except VersionConflictError:
                continue
            return True

    async def _replay(self, ledger: LedgerAccess[Any]) -> None:
        task = await ledger.run(self._get())
        await ledger.run(self._client.ledger.replay(self.id, task.record.version, new_task_id()))

    # --- what an answer means ------------------------------------------------------------------------------------

    def _state_of_missing(self, error: TaskNotFoundError) -> TaskState:
        if isinstance(error, StoreEmptiedError):  # the record did not expire
            raise error
        known = self.durability is not None or ("has expired" in str(error) and "ended as" in str(error))
        return TaskState.EXPIRED if known else TaskState.NOT_FOUND

    def _pause_after(self, poll: PollSchedule, error: TaskNotFoundError | StoreUnavailableError) -> float:
        """Return the seconds until the next poll, for a task that is not in the ledger yet or a store that is
        unreachable.

        Raise if waiting cannot help or the time is up.
        """
        if isinstance(error, TaskNotFoundError):
            waits = poll.ends and self._state_of_missing(error) is TaskState.NOT_FOUND
        else:
            waits = poll.missed(error)
        pause = poll.pause() if waits else None
        if pause is not None:
            return pause
        if not waits or isinstance(error, TaskNotFoundError):
            raise error
        raise ResultTimeoutError(
            f"the outcome of task {self.id} is not known after {poll.waited:.1f} s: the store is unreachable ({error}"
            f"); the task is not lost; try again when the store is back"
        ) from error

    def _result_of(self, task: Task) -> R:
        """Return the result of an ended task, or raise the error it ended with."""
        record = task.record
        if record.state is State.DONE:
            raw = task.result
            if raw is not None:
                raw = self._client.keyring.unwrap(raw, self.id, "result")
            return self._read(raw)  # type: ignore[no-any-return]
        if record.state is State.CANCELLED:
            raise TaskCancelledError(f"task {self.id} was cancelled ({record.reason or 'no reason given'})")
        raise cause_of_death(task)

    async def _too_late(self, ledger: LedgerAccess[Any], seconds: float, record: Record) -> ResultTimeoutError:
        waits = record.state in (State.QUEUED, State.SCHEDULED)
        why = await self._why_waiting(ledger, record.queue) if waits else ""
        return ResultTimeoutError(
            f"task {self.id} is still {record.state} after {seconds:.1f} s{why or '; the task continues'}; see `rl why "
            f"{self.id}`"
        )

    async def _why_waiting(self, ledger: LedgerAccess[Any], queue: str) -> str:
        """Return why no worker claims the task and what to do, if one read shows it."""
        settings = self._client.settings
        try:
            stats: Stats = await ledger.run(self._client.ledger.stats(), SLOWEST_POLL_S)
        except RelierError:  # the store has just become unreachable; the timeout is reported without a reason
            return ""
        if not stats.cursor and not stats.alive(settings.heartbeat_ttl):
            return f": no worker is alive in {place_of(settings)}; start one with `rl worker`"
        if stats.unattended(queue, settings.heartbeat_ttl):
            return f": no worker that is alive serves queue {queue!r}; start one with `rl worker --queue {queue}`"
        if stats.is_paused(queue):
            return f": queue {queue!r} is paused; resume it with `rl queues resume {queue}`"
        return ""


class TaskReceipt(Receipt[R]):
    """Represent a task that `apush` accepted. Its methods are awaited."""

    async def state(self) -> TaskState:
        return await self._state(self._client.awaiting)

    async def progress(self) -> TaskProgress | None:
        """Return what the task last reported with `ctx.progress`, or None if it has reported nothing yet."""
        return await self._progress(self._client.awaiting)

    async def info(self) -> Task:
        """Return the whole record: reason, history, checkpoint. Raise TaskNotFoundError if there is none."""
        return await self._client.arun(self._get())

    async def result(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - our error names the task's state
        """Return what the task returned, once it has ended.

        Raise the error the task died of, TaskCancelledError, or ResultTimeoutError after `timeout` seconds. Outages of
        the store do not end the wait. With a `timeout`, also wait for a task that is not in the ledger yet, because an
        outbox may still have it.
        """
        return self._result_of(await self._end(self._client.awaiting, timeout))

    async def cancel(self) -> bool:
        """Cancel the task: at once if it waits, at its worker's next heartbeat if it runs.

        Return True if the task is cancelled or was asked to stop, and False if it had already ended in another way.
        """
        return await self._cancel(self._client.awaiting)

    async def replay(self) -> None:
        """Run a dead task again, with its checkpoint and steps. Raise IllegalMoveError if the task is not dead."""
        await self._replay(self._client.awaiting)


class SyncTaskReceipt(Receipt[R]):
    """Represent a task that `push` accepted. Its methods block."""

    def state(self) -> TaskState:
        return run_sync(self._state(self._client.blocking))

    def progress(self) -> TaskProgress | None:
        """Return what the task last reported, like `TaskReceipt.progress`."""
        return run_sync(self._progress(self._client.blocking))

    def info(self) -> Task:
        """Return the whole record, like `TaskReceipt.info`."""
        return self._client.run(self._get())

    def result(self, timeout: float | None = None) -> R:
        """Return what the task returned, once it has ended, or raise, like `TaskReceipt.result`."""
        return self._result_of(run_sync(self._end(self._client.blocking, timeout)))

    def cancel(self) -> bool:
        """Cancel the task, like `TaskReceipt.cancel`."""
        return run_sync(self._cancel(self._client.blocking))

    def replay(self) -> None:
        """Run a dead task again, like `TaskReceipt.replay`."""
        run_sync(self._replay(self._client.blocking))


class PollSchedule:
    """Decide when to ask again whether a task has ended: often at first, then less, never past the time given."""

    def __init__(self, seconds: float | None, *, seen: bool = False) -> None:
        if seconds is not None and not isinstance(seconds, int | float):
            raise ConfigurationError(
                f"timeout must be a number of seconds, or None to wait forever, not {seconds!r:.60}"
            )
        self._begun = time.monotonic()
        self._until = None if seconds is None else self._begun + seconds
        self._next = FIRST_POLL_S
        self._seen = seen  # the store has accepted this process
        self._away = False

    @property
    def ends(self) -> bool:
        """Return whether the wait has a time limit."""
        return self._until is not None

    @property
    def waited(self) -> float:
        return time.monotonic() - self._begun

    @property
    def longest(self) -> float:
        """Return how long one poll may take (s). The last one gets at least as long as a healthy store needs."""
        return math.inf if self._until is None else max(SLOWEST_POLL_S, self._until - time.monotonic())

    def reached(self) -> None:
        """Note that the store answered."""
        self._seen, self._away = True, False

    def missed(self, error: StoreUnavailableError) -> bool:
        """Return whether to wait for the store. A store that never accepted this client is a mistake to correct."""
        if isinstance(error, StoreSetupError) and not self._seen:
            return False
        if not self._away:
            log.warning("store unreachable, still waiting for a result: %s", error)
        self._away = True
        return True

    def pause(self) -> float | None:
        """Return the seconds until the next poll, or None if the time is up."""
        pause = self._next * random.uniform(0.75, 1.25)
        self._next = min(SLOWEST_POLL_S, self._next * 1.3)
        if self._until is None:
            return pause
        left = self._until - time.monotonic()
        return None if left <= 0 else min(pause, left)


def _read_plainly(raw: bytes | None) -> Any:
    return None if raw is None else codec.decode(raw)


def cause_of_death(task: Task) -> BaseException:
    """Return the exception a dead task died of, or a TaskDeadError if its class is not known here."""
    record = task.record
    failure = next((read_failure(entry.detail) for entry in reversed(task.history)), Failure())
    dead = TaskDeadError(record.id, record.reason, failure.message, failure.traceback)
    if record.reason in {"max_resurrections_exceeded", "workers_kept_dying"}:
        return MaxResurrectionsExceededError(record.id, record.reason, failure.message, failure.traceback)
    if record.reason == "TimeoutError" and failure.kind.endswith(":HardTimeoutError"):
        return _caused(HardTimeoutError(failure.message), dead)
    original = failure.rebuild() if failure.kind else None
    return dead if original is None else _caused(original, dead)


def _caused(error: BaseException, dead: TaskDeadError) -> BaseException:
    error.__cause__ = dead
    if dead.traceback:
        error.add_note(f"in the worker:\n{dead.traceback}")
    return error
