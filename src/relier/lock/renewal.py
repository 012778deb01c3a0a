"""Renew the marks of locks while their blocks run, so that no other caller can enter.

A mark is renewed at a third of its time. Code on an event loop is renewed by that loop, blocking code by one thread
per process. Renewals use their own connections, and one that failed is repeated soon (store/connect/heartbeat.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from relier import background
from relier.errors import RelierError
from relier.ledger.records import Verdict
from relier.run.context import TaskContext
from relier.store.call import Call
from relier.store.connect.heartbeat import retry_pause
from relier.submit.client import Client

T = TypeVar("T")
log = logging.getLogger("relier.lock")

RESULT = "lock"  # encrypts a result for its key alone: moved to another key, it cannot be decrypted


@dataclass(eq=False, slots=True)
class HeldKey:
    """Represent one entry into one lock. The token identifies the entry's mark in the store."""

    client: Client
    key: str
    token: str
    ms: int
    ctx: TaskContext | None = None  # of the task that entered the lock
    lost: bool = False
    away: bool = False  # the store did not answer the last renewal
    concluding: bool = False

    def renew(self) -> Call[Verdict]:
        return self.client.ledger.renew(self.key, self.token, self.ms)

    def conclude(self, keep_ms: int, result: bytes) -> Call[Verdict]:
        kept = self.client.keyring.wrap(result, self.key, RESULT)
        return self.client.ledger.conclude(self.key, self.token, keep_ms, kept)

    def unlock(self) -> Call[Verdict]:
        return self.client.ledger.unlock(self.key, self.token)

    @property
    def is_here(self) -> bool:
        """Return whether the key belongs to the same shard as the task that entered the lock.

        Another shard knows neither the task nor its worker, so there the key is held as by code outside tasks.
        """
        return self.ctx is not None and self.client.of(self.ctx.task_id) is self.client.of(self.key)

    @property
    def pause(self) -> float:
        """Return the seconds from one renewal to the next."""
        return self.ms / 3000

    def gives_up(self) -> Callable[[], bool]:
        """Return a function that says when to stop repeating a call that the store does not answer.

        Inside a task, stop once the attempt is lost. Outside, stop once the mark may have expired, because nothing
        tells such code that it has lost its lock.
        """
        ctx, until = self.ctx, time.monotonic() + self.ms / 1000
        return (lambda: ctx.lost) if ctx is not None else (lambda: time.monotonic() > until)

    def waiting(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager for a call. The time in it does not count towards the task's hard timeout."""
        return contextlib.nullcontext() if self.ctx is None else self.ctx.waits.one()

    def renewed(self, answer: Verdict | RelierError) -> float | None:
        """Return the seconds until the next renewal, or None if the mark is no longer this entry's."""
        if isinstance(answer, RelierError):
            if not self.away:  # log once per outage, however long it lasts
                log.warning("lock %.80r could not be renewed, will retry: %s", self.key, answer)
            self.away = True
            return retry_pause(self.ms / 1000)
        self.away = False
        if answer is Verdict.OK:
            return self.pause
        if self.concluding:  # the result may be stored, with its answer lost: the report of the end will find out
            return None
        log.error("lock %.80r is lost: its mark is %s", self.key, answer)
        self.lost = True
        return None


# --- on an event loop ------------------------------------------------------------------------------------------------

_started: set[asyncio.Task[Any]] = set()  # loops keep only weak references to their tasks


def start_uncancelled(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task that the cancellation of a caller does not end."""
    task = background.start(asyncio.get_running_loop(), work)
    _started.add(task)
    task.add_done_callback(_started.discard)
    return task


class LoopRenewal:
    """Renew one key from the event loop its block runs on.

    Most blocks end before the first renewal, so at first this only starts a timer.
    """

    def __init__(self, held: HeldKey) -> None:
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(held.pause, self._begin)

    def end(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = background.start(self._loop, self._renew())

    async def _renew(self) -> None:
        answer: Verdict | RelierError
        try:
            answer = await self._held.client.renewals.run(self._held.renew())
        except RelierError as error:
            answer = error
        pause = self._held.renewed(answer)
        if pause is not None:
            self._timer = self._loop.call_later(pause, self._begin)


# --- for blocking code -----------------------------------------------------------------------------------------------


class ThreadRenewals:
    """Renew the keys that blocking code holds, from one thread per process. The first key starts the thread."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start from nothing, in a forked child: it has no thread and holds no keys."""
        self._turn = threading.Condition()
        self._due: dict[HeldKey, float] = {}
        self._wakes = math.inf
        self._thread: threading.Thread | None = None

    def start(self, held: HeldKey) -> None:
        due = time.monotonic() + held.pause
        with self._turn:
            self._due[held] = due
            if due >= self._wakes:  # the thread wakes early enough: short blocks do not wake it at all
                return
            self._wakes = due
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="relier-locks", daemon=True)
                self._thread.start()
            else:
                self._turn.notify()

    def end(self, held: HeldKey) -> None:
        with self._turn:
            self._due.pop(held, None)

    def _run(self) -> None:
        while True:
            with self._turn:
                now = time.monotonic()
                due = [held for held, at in self._due.items() if at <= now]
                if not due:
                    if self._due or self._wakes <= now:
                        self._wakes = min(self._due.values(), default=math.inf)
                    self._turn.wait(None if self._wakes == math.inf else self._wakes - now)
                    continue
            for client in {held.client for held in due}:
                self._renew(client, [held for held in due if held.client is client])

    def _renew(self, client: Client, due: Sequence[HeldKey]) -> None:
        answers = _renew_all(client, due)
        with self._turn:
            for held, answer in zip(due, answers, strict=True):
                if held in self._due:  # otherwise the block has ended meanwhile, and its mark with it
                    pause = held.renewed(answer)
                    self._due[held] = math.inf if pause is None else time.monotonic() + pause


def _renew_all(client: Client, due: Sequence[HeldKey]) -> list[Verdict | RelierError]:
    """Renew the keys in one pipeline: an unreachable store costs one deadline, not one per key."""
    try:
        return client.sync_renewals.run_many([held.renew() for held in due])
    except Exception as error:  # noqa: BLE001 - the thread must go on, for the other keys too
        return [error if isinstance(error, RelierError) else RelierError(repr(error))] * len(due)


thread_renewals = ThreadRenewals()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=thread_renewals.reset)
