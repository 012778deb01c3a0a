"""Inside a pool process: an attempt of an `@rl_task`. One event loop for the process' life, made after the fork."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from functools import cache, partial
from typing import Any

import msgspec
from billiard.einfo import ExceptionInfo
from billiard.exceptions import Terminated
from celery import signals
from celery.exceptions import CeleryError, TaskPredicate
from celery.utils.serialization import get_pickleable_exception

from relier import background, registry
from relier.celery.adoption import AdoptedTask
from relier.celery.pool.adopted_child import Traced, in_pool_process, obeying
from relier.celery.pool.shared_orders import STOP, WARN, board
from relier.celery.working.report import CeleryTaskError
from relier.errors import RelierError
from relier.ledger.records import Claimed
from relier.run.attempt import Attempt, open_attempt
from relier.run.channel import LedgerChannel
from relier.run.execute import HardTimeout, execute, run_soft_hook, stop
from relier.run.isolated.child import report_of
from relier.run.outcome import Failed, HandBack, Outcome, PutBack
from relier.run.threads import Threads
from relier.submit.client import default_client

SOFT_LIMIT = signal.SIGUSR1  # Celery's soft time limit, which raises wherever it hits
HOOK_S = 1.0  # a hook that was called late may take so long


class Inside:
    """Runs one attempt at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._threads = Threads()
        self._channel = self._loop.run_until_complete(_open())
        self._warning: asyncio.Task[None] | None = None

    def run(self, claimed: Claimed) -> Outcome:
        attempt = open_attempt(claimed, self._channel, partial(board.trusted_until, claimed.lease.owner))
        if not isinstance(attempt, Attempt):
            return attempt
        celerys = signal.signal(SOFT_LIMIT, signal.SIG_IGN)
        try:
            with obeying(lambda: self._loop.call_soon_threadsafe(self._obey, attempt)):
                return background.run_until_done(self._loop, self._run(attempt))
        finally:
            signal.signal(SOFT_LIMIT, celerys)

    def _obey(self, attempt: Attempt) -> None:
        """What the worker has written on the board, before it sent its signal."""
        orders = board.orders_for(os.getpid(), attempt.key)
        if orders & WARN:
            self._warn(attempt)
        if orders & STOP:
            if board.is_lost(attempt.lease.owner):
                attempt.ctx.lose()
            stop(attempt, HandBack())

    async def _run(self, attempt: Attempt) -> Outcome:
        current = asyncio.current_task()
        if attempt.task.is_async and current is not None:
            attempt.stopper = current.cancel
        timers = [*self._timers(attempt)]
        self._obey(attempt)
        try:
            return await execute(attempt, self._threads, self._channel)
        finally:
            for timer in timers:
                timer.cancel()
            await self._end_warning()

    def _timers(self, attempt: Attempt) -> Any:
        options = attempt.task.options
        if options.soft_timeout is not None:
            yield self._loop.call_later(options.soft_timeout, self._warn, attempt)
        if options.hard_timeout is not None:
            yield HardTimeout(self._loop, attempt, options.hard_timeout)

    def _warn(self, attempt: Attempt) -> None:
        if self._warning is None:
            self._warning = background.start(self._loop, run_soft_hook(attempt))

    async def _end_warning(self) -> None:
        warning, self._warning = self._warning, None
        if warning is not None:
            await asyncio.wait([warning], timeout=HOOK_S)
            warning.cancel()


async def _open() -> LedgerChannel:
    client = default_client()
    await client.aopen()
    return LedgerChannel(client)


@cache
def _inside(pid: int) -> Inside:  # noqa: ARG001 - one per process, also after a fork
    return Inside()


@signals.worker_process_init.connect(weak=False)
def warm_up(**_: Any) -> None:
    """A process of the pool has started: its loop runs and its connection stands before the first task comes."""
    if in_pool_process() and any(not isinstance(task, AdoptedTask) for task in registry.known_tasks()):
        with contextlib.suppress(RelierError):  # a store that is away is no reason not to start
            _inside(os.getpid())


def run_claimed(raw: bytes) -> tuple[bytes, Traced]:
    """Run a claimed task of ours. The report for the worker, and what Celery's request wants to know."""
    claimed = msgspec.msgpack.decode(raw, type=Claimed)
    begun = time.monotonic()
    try:
        outcome = _inside(os.getpid()).run(claimed)
    except Exception as error:  # noqa: BLE001 - ours, not the task's: it must come to an end nevertheless
        outcome = PutBack(error)
    report = msgspec.msgpack.encode(report_of(outcome))
    took = time.monotonic() - begun
    if isinstance(outcome, Failed | PutBack):
        return report, (1, _info(outcome.error), took)
    return report, (0, "", took)


def _info(error: BaseException) -> ExceptionInfo:
    """With a traceback, which one that was never raised does not have. What would make Celery do more than tell of a
    failure (an exit would end its worker) is told as a plain one."""
    if not isinstance(error, Exception) or isinstance(error, MemoryError | CeleryError | TaskPredicate | Terminated):
        error = CeleryTaskError(f"{type(error).__name__}: {error}")
    try:
        _raise(get_pickleable_exception(error))
    except BaseException:  # noqa: BLE001 - whatever it is
        return ExceptionInfo()


def _raise(error: BaseException) -> None:
    raise error
