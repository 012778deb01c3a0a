"""Run an `@rl_task` in a process of Celery's pool."""

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
from relier.celery.pool.adopted_child import PoolResult, handling_orders, in_pool_process
from relier.celery.pool.shared_orders import STOP, WARN, shared_orders
from relier.celery.working.report import CeleryTaskError
from relier.errors import RelierError
from relier.ledger.records import Claimed
from relier.run.application.lifespan import RunningLifespan
from relier.run.attempt import Attempt
from relier.run.channel import LedgerChannel
from relier.run.current import install_log_fields
from relier.run.execute import arm_timeouts
from relier.run.isolated.child_runner import ChildRunner
from relier.run.isolated.messages import report_of
from relier.run.outcome import Failed, Outcome, PutBack
from relier.submit.client import default_client

SOFT_LIMIT = getattr(signal, "SIGUSR1", 0)  # Celery's soft time limit, which raises at any line of code; 0 on Windows


class PoolProcess:
    """Run the attempts of one pool process, one at a time, on an event loop that lives as long as the process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lifespan = RunningLifespan()
        self._runner = self._loop.run_until_complete(_open(self._lifespan))

    def close(self) -> None:
        """Leave the lifespan, before the process ends."""
        self._loop.run_until_complete(self._lifespan.leave())

    def run(self, claimed: Claimed) -> Outcome:
        attempt = self._runner.open(claimed, partial(shared_orders.trusted_until, claimed.lease.worker_id))
        if not isinstance(attempt, Attempt):
            return attempt
        celery_handler = signal.signal(SOFT_LIMIT, signal.SIG_IGN)
        try:
            with handling_orders(lambda: self._loop.call_soon_threadsafe(self._carry_out_orders, attempt)):
                return background.run_until_done(self._loop, self._run(attempt))
        finally:
            signal.signal(SOFT_LIMIT, celery_handler)

    async def _run(self, attempt: Attempt) -> Outcome:
        arm_timeouts(attempt, self._loop, lambda _: self._runner.warn())
        self._carry_out_orders(attempt)
        try:
            return await self._runner.run(attempt)
        finally:
            await self._runner.end_hook()

    def _carry_out_orders(self, attempt: Attempt) -> None:
        """Carry out the orders that the worker wrote before it sent its signal."""
        orders = shared_orders.orders_for(os.getpid(), attempt.key)
        if orders & WARN:
            self._runner.warn()
        if orders & STOP:
            self._runner.stop(lost=shared_orders.is_lost(attempt.lease.worker_id))


async def _open(lifespan: RunningLifespan) -> ChildRunner:
    client = default_client()
    await client.aopen()
    channel = LedgerChannel(client)
    channel.state = await lifespan.enter(client.settings)
    return ChildRunner(channel)


@cache
def _process(pid: int) -> PoolProcess:  # noqa: ARG001 - one per process, also after a fork
    return PoolProcess()


@signals.worker_process_init.connect(weak=False)
def warm_up(**_: Any) -> None:
    """Start the loop and connect to the store when the process starts, before its first task."""
    install_log_fields()
    if in_pool_process() and any(not isinstance(task, AdoptedTask) for task in registry.known_tasks()):
        with contextlib.suppress(RelierError):  # an unreachable store must not prevent the start
            _process(os.getpid())


@signals.worker_process_shutdown.connect(weak=False)
def close_down(**_: Any) -> None:
    """Leave the lifespan when the pool ends this process in an orderly way."""
    if _process.cache_info().currsize:
        _process(os.getpid()).close()


def run_claimed(raw: bytes) -> tuple[bytes, PoolResult]:
    """Run a claimed `@rl_task`. Return the report for the worker, and the result that Celery's request expects."""
    claimed = msgspec.msgpack.decode(raw, type=Claimed)
    started_at = time.monotonic()
    try:
        outcome = _process(os.getpid()).run(claimed)
    except Exception as error:  # noqa: BLE001 - our error, not the task's: the attempt still needs a report
        outcome = PutBack(error)
    report = msgspec.msgpack.encode(report_of(outcome))
    took = time.monotonic() - started_at
    if isinstance(outcome, Failed | PutBack):
        return report, (1, _exception_info(outcome.error), took)
    return report, (0, "", took)


def _exception_info(error: BaseException) -> ExceptionInfo:
    """Return the error with a traceback. An exception that was never raised has none and gets one here.

    An error that would make Celery do more than report a failure becomes a plain error: an exit would end the worker.
    """
    if not isinstance(error, Exception) or isinstance(error, MemoryError | CeleryError | TaskPredicate | Terminated):
        error = CeleryTaskError(f"{type(error).__name__}: {error}")
    try:
        _raise(get_pickleable_exception(error))
    except BaseException:  # noqa: BLE001 - whatever it is
        return ExceptionInfo()


def _raise(error: BaseException) -> None:
    raise error
