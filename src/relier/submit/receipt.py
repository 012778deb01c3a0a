"""What a caller holds after a push: the id, and ways to ask. The same for both kinds of callers, awaited or blocking.

A receipt can be rebuilt from an id alone, in another process, much later. Then it does not know the task's return type:
models come back as plain objects of their fields.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, Generic, TypeVar

from relier import codec
from relier.errors import (
    ConfigurationError,
    HardTimeoutError,
    MaxResurrectionsExceededError,
    RedisConnectionError,
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
from relier.ledger.records import Operated, Task, new_task_id
from relier.states import ENDED, State
from relier.store.call import Call, Durability
from relier.submit.client import Client, default_client

R = TypeVar("R")
log = logging.getLogger("relier.submit")
FIRST_LOOK_S, SLOWEST_LOOK_S = 0.005, 0.25


class TaskState(StrEnum):
    """What a receipt's task is. `expired`: it was accepted, and its record is past its retention."""

    NOT_FOUND = "not-found"
    EXPIRED = "expired"
    QUEUED = "queued"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Ticket(Generic[R]):
    """What both receipts are made of."""

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
            raise ConfigurationError(f"a receipt is made from a task's id, as a push gave it, not from {id!r:.60}")
        self.id = id
        self.duplicate = duplicate
        self.durability = durability  # None: whoever made this receipt does not know that it was accepted
        self._read = read_result or _read_plainly
        self._client = client or default_client()
        self._born = born  # the birth mark of the store that accepted it; "": not known

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}{', duplicate=True' if self.duplicate else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ticket) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def _get(self) -> Call[Task]:
        return self._client.ledger.get(self.id, self._born)

    def _cancel(self, task: Task) -> Call[Operated]:
        return self._client.ledger.cancel(self.id, task.record.version)

    def _replay(self, task: Task) -> Call[Operated]:
        return self._client.ledger.replay(self.id, task.record.version, new_task_id())

    def _missing(self, error: TaskNotFoundError) -> TaskState:
        if isinstance(error, StoreEmptiedError):  # it did not expire
            raise error
        known = self.durability is not None or ("has expired" in str(error) and "ended as" in str(error))
        return TaskState.EXPIRED if known else TaskState.NOT_FOUND

    def _until_it_comes(self, look: Looks, error: TaskNotFoundError | StoreUnavailableError) -> float:
        """Seconds to the next look, for a task that was never here or a store that is away. Raises where waiting is in
        vain or the time is up."""
        if isinstance(error, TaskNotFoundError):
            waits = look.ends and self._missing(error) is TaskState.NOT_FOUND
        else:
            waits = look.missed(error)
        pause = look.pause() if waits else None
        if pause is not None:
            return pause
        if not waits or isinstance(error, TaskNotFoundError):
            raise error
        raise ResultTimeoutError(
            f"after {look.waited:.1f} s it is not known what became of task {self.id}: the store is away ({error}); "
            f"the task is not lost; ask again when the store is back"
        ) from error

    def _result_of(self, task: Task) -> R:
        """The result of an ended task, or what it ended by, raised."""
        record = task.record
        if record.state is State.DONE:
            raw = task.result
            if raw is not None:
                raw = self._client.keyring.unwrap(raw, self.id, "result")
            return self._read(raw)  # type: ignore[no-any-return]
        if record.state is State.CANCELLED:
            raise TaskCancelledError(f"task {self.id} was cancelled ({record.reason or 'no reason given'})")
        raise cause_of_death(task)

    def _too_late(self, seconds: float, state: State) -> ResultTimeoutError:
        return ResultTimeoutError(
            f"task {self.id} is still {state} after {seconds:.1f} s; it goes on; `rl why {self.id}` tells more"
        )


class TaskReceipt(Ticket[R]):
    """The receipt of `apush`: ask with await."""

    async def state(self) -> TaskState:
        try:
            return TaskState((await self._client.arun(self._get())).record.state)
        except TaskNotFoundError as error:
            return self._missing(error)

    async def info(self) -> Task:
        """The whole record: reason, history, checkpoint. TaskNotFoundError where there is none."""
        return await self._client.arun(self._get())

    async def result(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - ours names the state it found
        """What the task returned. Raises what it died of, TaskCancelledError, or ResultTimeoutError after `timeout`.

        An outage of the store is waited through. With a `timeout`, a task that is not here yet is waited for, too: it
        may be on its way out of an outbox."""
        look = Looks(timeout, seen=self._client.opened)
        while True:
            try:
                task = await look.at(self._client.arun(self._get()))
            except (TaskNotFoundError, StoreUnavailableError) as error:
                await asyncio.sleep(self._until_it_comes(look, error))
                continue
            look.reached()
            if task.record.state in ENDED:
                return self._result_of(task)
            pause = look.pause()
            if pause is None:
                raise self._too_late(look.waited, task.record.state)
            await asyncio.sleep(pause)

    async def cancel(self) -> bool:
        """End it: now if it waits, at its worker's next beat if it runs. False: it had ended before."""
        while True:
            task = await self._client.arun(self._get())
            if task.record.state in ENDED:
                return task.record.state is State.CANCELLED
            try:
                await self._client.arun(self._cancel(task))
            except VersionConflictError:
                continue
            return True

    async def replay(self) -> None:
        """Send a dead task round again, with all it had. IllegalMoveError for one that is not dead."""
        await self._client.arun(self._replay(await self._client.arun(self._get())))


class SyncTaskReceipt(Ticket[R]):
    """The receipt of `push`: ask, and block."""

    def state(self) -> TaskState:
        try:
            return TaskState(self._client.run(self._get()).record.state)
        except TaskNotFoundError as error:
            return self._missing(error)

    def info(self) -> Task:
        """The whole record: reason, history, checkpoint. TaskNotFoundError where there is none."""
        return self._client.run(self._get())

    def result(self, timeout: float | None = None) -> R:
        """What the task returned. Raises what it died of, TaskCancelledError, or ResultTimeoutError after `timeout`.

        An outage of the store is waited through. With a `timeout`, a task that is not here yet is waited for, too: it
        may be on its way out of an outbox."""
        look = Looks(timeout, seen=self._client.opened)
        while True:
            try:
                task = self._client.run(self._get(), look.longest)
            except (TaskNotFoundError, StoreUnavailableError) as error:
                time.sleep(self._until_it_comes(look, error))
                continue
            look.reached()
            if task.record.state in ENDED:
                return self._result_of(task)
            pause = look.pause()
            if pause is None:
                raise self._too_late(look.waited, task.record.state)
            time.sleep(pause)

    def cancel(self) -> bool:
        """End it: now if it waits, at its worker's next beat if it runs. False: it had ended before."""
        while True:
            task = self._client.run(self._get())
            if task.record.state in ENDED:
                return task.record.state is State.CANCELLED
            try:
                self._client.run(self._cancel(task))
            except VersionConflictError:
                continue
            return True

    def replay(self) -> None:
        """Send a dead task round again, with all it had. IllegalMoveError for one that is not dead."""
        self._client.run(self._replay(self._client.run(self._get())))


class Looks:
    """When to look again for an end: often at first, then less, never past the time given."""

    def __init__(self, seconds: float | None, *, seen: bool = False) -> None:
        if seconds is not None and not isinstance(seconds, int | float):
            raise ConfigurationError(f"timeout is a number of seconds, or None to wait for ever, not {seconds!r:.60}")
        self._begun = time.monotonic()
        self._until = None if seconds is None else self._begun + seconds
        self._next = FIRST_LOOK_S
        self._seen = seen  # the store let this process in
        self._away = False

    @property
    def ends(self) -> bool:
        """Whether a time was given."""
        return self._until is not None

    @property
    def waited(self) -> float:
        return time.monotonic() - self._begun

    @property
    def longest(self) -> float:
        """How long one look may take (s): the last one is not cut shorter than a healthy store needs."""
        return math.inf if self._until is None else max(SLOWEST_LOOK_S, self._until - time.monotonic())

    async def at(self, reading: Awaitable[Task]) -> Task:
        """Await one look, for no longer than it may take."""
        if self._until is None:
            return await reading
        try:
            async with asyncio.timeout(self.longest):
                return await reading
        except TimeoutError:
            raise RedisConnectionError("the store gave no answer in the time that was left") from None

    def reached(self) -> None:
        """Note that the store answered."""
        self._seen, self._away = True, False

    def missed(self, error: StoreUnavailableError) -> bool:
        """Whether to wait for the store. A store that refused this client from the start is a mistake to correct."""
        if isinstance(error, StoreSetupError) and not self._seen:
            return False
        if not self._away:
            log.warning("waiting for a result while the store is away: %s", error)
        self._away = True
        return True

    def pause(self) -> float | None:
        """Seconds to the next look; None: the time is up."""
        pause = self._next * random.uniform(0.75, 1.25)
        self._next = min(SLOWEST_LOOK_S, self._next * 1.3)
        if self._until is None:
            return pause
        left = self._until - time.monotonic()
        return None if left <= 0 else min(pause, left)


def _read_plainly(raw: bytes | None) -> Any:
    return None if raw is None else codec.decode(raw)


def cause_of_death(task: Task) -> BaseException:
    """The exception a dead task died of: itself where its class is known here, else a TaskDeadError."""
    record = task.record
    failure = next((read_failure(entry.detail) for entry in reversed(task.history)), Failure())
    told = TaskDeadError(record.id, record.reason, failure.message, failure.traceback)
    if record.reason in {"max_resurrections_exceeded", "workers_kept_dying"}:
        return MaxResurrectionsExceededError(record.id, record.reason, failure.message, failure.traceback)
    if record.reason == "TimeoutError" and failure.kind.endswith(":HardTimeoutError"):
        return _caused(HardTimeoutError(failure.message), told)
    original = failure.rebuild() if failure.kind else None
    return told if original is None else _caused(original, told)


def _caused(error: BaseException, told: TaskDeadError) -> BaseException:
    error.__cause__ = told
    if told.traceback:
        error.add_note(f"in the worker:\n{told.traceback}")
    return error
